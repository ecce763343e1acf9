/* The form of a recurring task: its next times follow what is typed. Without this script they come when it is saved. */
"use strict";
(() => {
    const place = document.querySelector("[data-lq-times]");
    const names = ["schedule", "timezone", "phase", "until"];
    const fields = names.map((name) => document.querySelector(`[name=${name}]`));
    if (!place || fields.includes(null)) return;
    let timer = 0;
    let asked = 0;
    const show = async () => {
        const given = fields.map((field) => [field.name, field.value.trim()]);
        const number = ++asked;
        if (!given[0][1]) return;
        const answer = await fetch(`${place.dataset.lqTimes}?${new URLSearchParams(given)}`);
        const text = answer.ok ? await answer.text() : "";
        if (number !== asked || !text) return;
        place.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
    };
    for (const field of fields) {
        field.addEventListener("input", () => {
            clearTimeout(timer);
            timer = setTimeout(show, 300);
        });
    }
})();
