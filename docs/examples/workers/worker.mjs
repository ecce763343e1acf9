import { hostname } from "node:os";

const api = `${process.env.LEASEQUEUE_URL}/topics/thumbnails`;
const auth = { authorization: `Bearer ${process.env.LEASEQUEUE_TOKEN}` };
const node = `${hostname()}-${process.pid}`;
const leaseMs = Number(process.env.LEASE_MS ?? 30_000);
const max = 4;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function handle(job) {
  if (!job.data.src) throw new Error("no src");
  await sleep(job.data.seconds * 1000);
  console.log("done", job.data.src);
}

/** POST, again and again while the failure is one that passes. */
async function call(endpoint, body) {
  for (let attempt = 1; ; attempt++) {
    let wait = Math.min(10_000, 100 * 2 ** attempt) * (0.5 + Math.random() / 2);
    let failure;
    try {
      const response = await fetch(`${api}/${endpoint}`, {
        method: "POST",
        headers: { ...auth, "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(20_000),
      });
      if (response.ok) return await response.json();
      failure = new Error(`${response.status} ${await response.text()}`);
      if (![429, 502, 503, 504].includes(response.status)) attempt = Infinity;
      wait += 1000 * (Number(response.headers.get("retry-after")) || 0);
    } catch (error) {
      failure = error;
    }
    if (attempt >= 6) throw failure;
    await sleep(wait);
  }
}

/** The events of a stream. */
async function* events(url, signal) {
  const response = await fetch(url, { headers: { ...auth, accept: "text/event-stream" }, signal });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  let rest = "";
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s)));
      if (fields.data) yield { name: fields.event, data: JSON.parse(fields.data) };
    }
  }
}

const running = new Set();
let stopping = false;

async function work(job) {
  const lease = { node, seqs: [job.$seq], lease_ids: [job.lease_id] };
  const heart = setInterval(
    () => call("extend", { ...lease, lease_ms: leaseMs }).catch(console.error),
    leaseMs / 3,
  );
  try {
    await handle(job);
    await call("ack", lease);
  } catch (error) {
    console.error("job", job.$seq, error);
    await call("nack", { ...lease, delay_ms: 1000 }).catch(console.error);
  } finally {
    clearInterval(heart);
  }
}

const stream = new AbortController();
process.once("SIGTERM", async () => {
  stopping = true; // the stream stays open until the jobs that run are done: closing it gives them to others
  await Promise.allSettled(running);
  stream.abort();
});

while (!stopping) {
  try {
    for await (const { name, data } of events(`${api}/work?node=${node}&max=${max}&lease_ms=${leaseMs}`, stream.signal)) {
      if (name === "error" && data.code !== 429) throw new Error(data.message);
      if (name !== "job") continue; // a job's workflow was cancelled, or requests are refused for a moment
      if (stopping) continue;
      const run = work(data).finally(() => running.delete(run));
      running.add(run);
    }
  } catch (error) {
    if (!stopping) console.error("the stream ended:", error.message);
  }
  if (!stopping) await sleep(2000 * Math.random());
}
await Promise.allSettled(running);
