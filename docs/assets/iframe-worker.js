/* Browsers start no worker for a page that is opened as a file: there the search's script runs in a frame of the page. */
"use strict";
if (location.protocol === "file:") {
    window.Worker = class extends EventTarget {
        constructor(url) {
            super();
            const frame = Object.assign(document.createElement("iframe"), { hidden: true });
            document.body.append(frame);
            this.inside = frame.contentWindow;
            this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
            const script = Object.assign(frame.contentDocument.createElement("script"), { src: url });
            this.ready = new Promise((resolve) => { script.onload = resolve; });
            frame.contentDocument.body.append(script);
        }

        async postMessage(data) {
            await this.ready;
            this.inside.dispatchEvent(new MessageEvent("message", { data }));
        }

        terminate() {
            this.inside.frameElement.remove();
        }
    };
}
