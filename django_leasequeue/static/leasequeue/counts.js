/* The figures of the navigation: dead letters, waiting and running jobs, alerts. Without it there are none. */
"use strict";
(() => {
    const list = document.querySelector("[data-lq-counts]");
    if (!list) return;
    const show = async () => {
        if (document.hidden) return;
        const answer = await fetch(list.dataset.lqCounts, { credentials: "same-origin" }).catch(() => null);
        if (!answer || !answer.ok) return;
        const figures = await answer.json().catch(() => ({}));
        for (const place of list.querySelectorAll("[data-lq-figure]")) place.textContent = figures[place.dataset.lqFigure] || "";
    };
    show();
    setInterval(show, 15000);
})();
