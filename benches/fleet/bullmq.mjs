// BullMQ with tiny jobs: sends them in bulk, then works on them.
import { Queue, Worker } from "bullmq";

const connection = { host: "127.0.0.1", port: Number(process.env.PORT) };
const count = Number(process.env.COUNT);
const queue = new Queue("bench", { connection });
let began = performance.now();
for (let from = 0; from < count; from += 500) {
  const many = Math.min(500, count - from);
  await queue.addBulk(Array.from({ length: many }, (_, n) => ({ name: "tiny", data: { n: from + n }, opts: { removeOnComplete: true } })));
}
const sent = (performance.now() - began) / 1000;
const before = process.cpuUsage();
began = performance.now();
let done = 0;
await new Promise((resolve) => {
  const worker = new Worker("bench", async () => { if (++done === count) setTimeout(resolve, 0); }, { connection, concurrency: 50 });
  worker.on("error", (error) => { console.error(error.message); });
});
const took = (performance.now() - began) / 1000;
const cpu = process.cpuUsage(before);
console.log(JSON.stringify({ sent, took, cpu: (cpu.user + cpu.system) / 1e6 }));
process.exit(0);
