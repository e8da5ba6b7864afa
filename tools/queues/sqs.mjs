// An SQS server for tests: listens on the loopback address, prints its port, and ends with its
// standard input, so that it does not outlive the test that started it.
//   node sqs.mjs [PORT]
import { buildApp } from "fauxqs";

const app = buildApp({ logger: false });
await app.listen({ port: Number(process.argv[2] ?? 0), host: "127.0.0.1" });
console.log(app.server.address().port);
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
process.stdin.on("error", () => process.exit(0));
