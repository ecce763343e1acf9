/* The list of dead letters: one box that ticks all of the page, and how many are ticked. The editor of one: the cursor
   stands where the JSON is wrong. Everything works without it. */
"use strict";
(() => {
    for (const box of document.querySelectorAll("textarea[data-lq-error]")) {
        const at = Number(box.dataset.lqError);
        box.focus();
        box.setSelectionRange(at, at + 1);
    }
    for (const form of document.querySelectorAll("form[data-lq-selection]")) {
        const boxes = [...form.querySelectorAll("input[type=checkbox][name=seq]")];
        const all = form.querySelector("[data-lq-all]");
        const count = form.querySelector("[data-lq-count]");
        const selection = form.querySelector("input[name=scope][value=selection]");
        if (!all || !boxes.length) continue;
        const show = () => {
            const ticked = boxes.filter((box) => box.checked).length;
            all.checked = ticked === boxes.length;
            all.indeterminate = ticked > 0 && ticked < boxes.length;
            if (count) count.textContent = ticked ? `(${ticked})` : "";
            for (const box of boxes) box.closest("tr").classList.toggle("lq-chosen", box.checked);
        };
        all.hidden = false;
        all.addEventListener("change", () => {
            for (const box of boxes) box.checked = all.checked;
            show();
        });
        for (const box of boxes) {
            box.addEventListener("change", () => {
                if (selection) selection.checked = true;
                show();
            });
        }
        show();
    }
})();
