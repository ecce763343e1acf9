/* Goes on with a search by itself: asks for the next part until a page of jobs is found or all were read.
   Without this script the link "Search on" does the same. */
"use strict";
(() => {
    const PAGE = 50;
    const place = document.querySelector("[data-lq-search][data-next]");
    if (!place) return;
    const progress = place.querySelector("[data-lq-progress]");
    const top = Number(place.dataset.next) + Number(place.dataset.looked);
    let [looked, found] = [Number(place.dataset.looked), Number(place.dataset.found)];
    let link = progress.querySelector("a");
    let stopped = found >= PAGE;
    const bar = Object.assign(document.createElement("progress"), { max: top, value: 0 });
    bar.setAttribute("aria-label", place.dataset.searched);
    const stop = Object.assign(document.createElement("button"), { type: "button", className: "lq-button", textContent: place.dataset.stop });
    const text = document.createElement("span");
    text.setAttribute("role", "status");

    const follow = (part) => {
        const table = place.querySelector("table");
        const rows = part.querySelectorAll("tbody tr");
        if (table) table.tBodies[0].append(...rows);
        else if (rows.length) place.querySelector(".lq-quiet").replaceWith(part.querySelector(".lq-scroll"));
        looked += Number(part.dataset.looked);
        found += Number(part.dataset.found);
        link = part.querySelector("[data-lq-progress] a");
        bar.value = link ? top - Number(part.dataset.next) : top;
    };
    const show = () => {
        const words = link ? place.dataset.more : place.dataset.all;
        const count = looked.toLocaleString(document.documentElement.lang || "en");
        text.textContent = `${words.replace("{looked}", count).replace("{found}", found)} `;
    };
    const end = () => {
        bar.remove();
        stop.remove();
        const quiet = place.querySelector(".lq-quiet");
        if (!link && quiet) quiet.textContent = place.dataset.none;
        if (link) progress.append(link);
        const pages = document.querySelector("[data-lq-search-pages]");
        const next = pages && pages.querySelector("[rel=next]");
        if (next && link) next.href = link.href;
        else if (next) next.remove();
    };
    const go = async () => {
        while (link && !stopped && found < PAGE) {
            let part = null;
            try {
                const answer = await fetch(link.href, { credentials: "same-origin" });
                const page = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html");
                part = page && page.querySelector("[data-lq-search]");
            } catch {
                part = null;
            }
            if (!part) break;
            follow(part);
            show();
        }
        end();
    };
    if (stopped) return;
    stop.addEventListener("click", () => { stopped = true; });
    progress.removeAttribute("role");
    progress.replaceChildren(text, bar, stop);
    show();
    go();
})();
