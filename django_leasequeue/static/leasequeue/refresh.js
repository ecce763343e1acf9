/* Keeps marked regions of a page up to date.

   <section id="queues" data-lq-refresh data-lq-every="5">   this page is asked again every five seconds
   <section id="bar" data-lq-refresh="/some/url">            another address, the default interval
   <button data-lq-pause>, <span data-lq-refreshed role="status">   optional: stop and go on; when it was

   The answer is a whole page, of which the element with the same id is taken. Nodes are changed in place where they are of
   the same kind, so nothing flickers and focus, scrolling, open details, ticks and selected text stay. Nothing is asked while the tab
   is hidden, while text of the region is selected, or while a field of the region is being filled in. A region that says
   data-lq-every="0" in an answer is not asked for any more. */
"use strict";
(() => {
    const INTERVAL = 5;
    const LONGEST = 60;
    const FIELDS = "input:not([type=checkbox]):not([type=radio]):not([type=submit]):not([type=button]), select, textarea";
    const groups = new Map();
    let paused = false;

    const address = (region) => new URL(region.dataset.lqRefresh || location.href, location.href).href.split("#")[0];

    // The texts are attributes of the place: the page has them in its language.
    const say = (name, time = "") => {
        for (const place of document.querySelectorAll("[data-lq-refreshed]")) {
            const text = (place.dataset[name] ?? "").replace("{time}", time);
            if (place.textContent !== text) place.textContent = text;
        }
    };

    // What makes two nodes the same thing at two times: the id or key of an element, else its name and first class.
    const kind = (node) =>
        node.nodeType !== Node.ELEMENT_NODE
            ? node.nodeName
            : `${node.nodeName}#${node.id || node.getAttribute("data-lq-key") || `.${node.classList[0] || ""}`}`;

    const setAttributes = (from, to) => {
        for (const { name } of [...from.attributes]) {
            if (!to.hasAttribute(name) && !(name === "open" && from.nodeName === "DETAILS")) from.removeAttribute(name);
        }
        for (const { name, value } of to.attributes) {
            if (name === "open" && from.nodeName === "DETAILS") continue;
            if (from.getAttribute(name) !== value) from.setAttribute(name, value);
        }
        if (from.nodeName === "PROGRESS" && to.hasAttribute("value")) from.value = to.value;
    };

    const morph = (from, to) => {
        if (from.nodeType !== Node.ELEMENT_NODE) {
            if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
            return;
        }
        if (from.isEqualNode(to)) return;
        setAttributes(from, to);
        let old = from.firstChild;
        const coming = [...to.childNodes].map(kind);
        [...to.childNodes].forEach((wanted, index) => {
            let match = old;
            while (match && kind(match) !== coming[index]) match = match.nextSibling;
            // Nodes before the match go, unless one of them comes later: then the wanted one is new, and goes before them.
            for (let node = old; match && node !== match; node = node.nextSibling) {
                if (node.nodeType === Node.ELEMENT_NODE && coming.includes(kind(node), index)) match = null;
            }
            if (!match) {
                from.insertBefore(document.importNode(wanted, true), old);
                return;
            }
            while (old !== match) {
                const next = old.nextSibling;
                old.remove();
                old = next;
            }
            old = match.nextSibling;
            morph(match, wanted);
        });
        while (old) {
            const next = old.nextSibling;
            old.remove();
            old = next;
        }
    };

    const busy = (region) => {
        const selection = document.getSelection();
        const reading = selection && !selection.isCollapsed && region.contains(selection.anchorNode);
        const active = document.activeElement;
        return reading || (region.contains(active) && active.matches(FIELDS));
    };

    const show = (group, page) => {
        let shortest = Infinity;
        for (const region of group.regions) {
            const fresh = page.getElementById(region.id);
            if (!fresh || !region.isConnected) continue;
            if (!busy(region)) {
                const focused = region.contains(document.activeElement) ? document.activeElement.id : "";
                morph(region, fresh);
                if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus();
            }
            const every = Number(fresh.dataset.lqEvery ?? INTERVAL);
            if (every > 0) shortest = Math.min(shortest, every);
        }
        group.every = shortest;
        group.wait = shortest;
    };

    // A document from an XMLHttpRequest needs no HTML sink: it passes under require-trusted-types-for as well.
    const ask = (group) => {
        clearTimeout(group.timer);
        if (group.asking || paused || document.hidden || group.every === Infinity) return;
        group.asking = true;
        const request = new XMLHttpRequest();
        request.open("GET", group.url);
        request.responseType = "document";
        request.timeout = 20000;
        request.onloadend = () => {
            group.asking = false;
            const moved = request.responseURL && request.responseURL.split("#")[0] !== group.url;
            if (request.status === 200 && request.response && !moved) {
                show(group, request.response);
                group.asked = Date.now();
                say(group.every === Infinity ? "" : "fresh", new Date().toLocaleTimeString(document.documentElement.lang || undefined));
            } else {
                group.wait = Math.min(group.wait * 2, LONGEST);
                say(moved || request.status === 403 ? "signIn" : "away");
            }
            plan(group);
        };
        request.send();
    };

    const plan = (group) => {
        clearTimeout(group.timer);
        if (!paused && !document.hidden && group.wait !== Infinity) group.timer = setTimeout(ask, group.wait * 1000, group);
    };

    const goOn = () => {
        for (const group of groups.values()) {
            if (Date.now() - group.asked >= group.wait * 1000) ask(group);
            else plan(group);
        }
    };

    const stop = () => {
        for (const group of groups.values()) clearTimeout(group.timer);
    };

    for (const region of document.querySelectorAll("[data-lq-refresh][id]")) {
        const every = Number(region.dataset.lqEvery ?? INTERVAL);
        if (!(every > 0)) continue;
        const url = address(region);
        const group = groups.get(url) ?? { url, regions: [], every, wait: every, asked: Date.now() };
        group.regions.push(region);
        group.every = group.wait = Math.min(group.every, every);
        groups.set(url, group);
    }

    document.addEventListener("visibilitychange", () => (document.hidden ? stop() : goOn()));
    for (const button of document.querySelectorAll("[data-lq-pause]")) {
        button.hidden = groups.size === 0;
        button.addEventListener("click", () => {
            paused = !paused;
            button.setAttribute("aria-pressed", String(paused));
            if (paused) {
                stop();
                say("paused");
            } else {
                say("");
                for (const group of groups.values()) ask(group);
            }
        });
    }
    goOn();
})();
