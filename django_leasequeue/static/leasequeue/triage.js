/* Lists of jobs: one box that ticks all of the page, and how many are ticked. The editor of one: the cursor
   stands where the JSON is wrong. Everything works without it. */
"use strict";
(() => {
    for (const box of document.querySelectorAll("textarea[data-lq-error]")) {
        const at = Number(box.dataset.lqError);
        box.focus();
        box.setSelectionRange(at, at + 1);
    }
    for (const form of document.querySelectorAll("form[data-lq-selection]")) {
        // A search appends rows.
        const boxes = () => [...form.querySelectorAll("input[type=checkbox][name=seq]")];
        const count = form.querySelector("[data-lq-count]");
        const selection = form.querySelector("input[name=scope][value=selection]");
        const show = () => {
            const ticked = boxes().filter((box) => box.checked).length;
            for (const all of form.querySelectorAll("[data-lq-all]")) {
                all.hidden = false;
                all.checked = ticked > 0 && ticked === boxes().length;
                all.indeterminate = ticked > 0 && !all.checked;
            }
            if (count) count.textContent = ticked ? `(${ticked})` : "";
            for (const box of boxes()) box.closest("tr").classList.toggle("lq-chosen", box.checked);
        };
        form.addEventListener("change", ({ target }) => {
            if (target.matches("[data-lq-all]")) for (const box of boxes()) box.checked = target.checked;
            else if (selection && target.name === "seq") selection.checked = true;
            show();
        });
        show();
    }
})();
