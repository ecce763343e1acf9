/* Keeps what {% leasequeue_progress %} shows up to date until the task ends.

   It asks data-url after one second, then less and less often, and not while the tab is hidden. Each answer is an event
   "leasequeue-progress" of the element, which bubbles; its detail is the answer (status, ended, words, detail, done, of). */
const FIRST = 1000;
const LONGEST = 10000;
const GROWTH = 1.3;

const say = (place, text) => {
    if (place && place.textContent !== text) place.textContent = text;
};

class LeasequeueProgress extends HTMLElement {
    #wait = FIRST;
    #timer = 0;
    #plan = () => {
        clearTimeout(this.#timer);
        if (!document.hidden && !("ended" in this.dataset)) this.#timer = setTimeout(() => this.#ask(), this.#wait);
    };

    connectedCallback() {
        document.addEventListener("visibilitychange", this.#plan);
        this.#plan();
    }

    disconnectedCallback() {
        document.removeEventListener("visibilitychange", this.#plan);
        clearTimeout(this.#timer);
    }

    async #ask() {
        this.#wait = Math.min(this.#wait * GROWTH, LONGEST);
        let answered = false;
        try {
            const response = await fetch(this.dataset.url, { headers: { Accept: "application/json" }, cache: "no-store" });
            if (response.status === 404) {
                this.dataset.ended = "";
                say(this.querySelector("[role=status]"), this.dataset.gone);
            } else if (response.ok) {
                this.#show(await response.json());
                answered = true;
            }
        } catch {
            // No answer, or a page in its place: it may come later, and the link is there again.
        }
        const refresh = this.querySelector("[data-refresh]");
        if (refresh) refresh.hidden = answered;
        if (this.isConnected) this.#plan();
    }

    #show(found) {
        const bar = this.querySelector("progress");
        if (bar && found.of !== null) {
            bar.max = found.of;
            bar.value = found.done;
        } else if (bar && found.ended) {
            bar.value = 0;
        } else {
            bar?.removeAttribute("value");
        }
        say(this.querySelector("[role=status]"), found.words);
        say(this.querySelector("[data-detail]"), found.detail);
        if (found.ended) {
            this.dataset.ended = "";
            this.querySelector("[data-next]")?.removeAttribute("hidden");
        }
        this.dispatchEvent(new CustomEvent("leasequeue-progress", { bubbles: true, detail: found }));
    }
}

if (!customElements.get("leasequeue-progress")) customElements.define("leasequeue-progress", LeasequeueProgress);
