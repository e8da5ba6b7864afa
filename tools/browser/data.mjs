// Input for the pages: addresses, and parcels of which some are invalid, empty or unknown.
import { writeFileSync } from "node:fs";

let seed = 42;
const chance = () => ((seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648);

writeFileSync("addresses.csv", "id,address\n" + Array.from({ length: 500 }, (_, i) => `${i},${i} Harbour Road\n`).join(""));

const towns = [[16.37, 48.21], [15.44, 47.07], [13.04, 47.8], [14.29, 48.31], [11.39, 47.27], [12.5, 41.9], [9.19, 45.46], [14.27, 40.85]];
let lines = "";
for (let id = 1; id <= 600; id++) {
  const [x, y] = towns[id % towns.length];
  const lon = x + (chance() - 0.5) * 1.6, lat = y + (chance() - 0.5) * 1.1;
  const ring = [[0, 0], [0.004, 0], [0.004, 0.004], [0, 0.004], [0, 0]];
  // A ring that crosses itself.
  if (id % 23 === 0) [ring[1], ring[2]] = [ring[2], ring[1]];
  const coordinates = [ring.map(([a, b]) => [+(lon + a).toFixed(6), +(lat + b).toFixed(6)])];
  // Some the service does not know.
  const number = id % 19 === 0 ? 900000 + id : id;
  const owner = id % 31 === 0 ? null : `owner ${id}`;
  lines += JSON.stringify({ type: "Feature", properties: { id: number, owner, area: +(chance() * 900).toFixed(1) }, geometry: { type: "Polygon", coordinates } }) + "\n";
}
writeFileSync("parcels.geojsonl", lines);

const policy = `  retry_policy: { max_attempts: 4, base_delay_seconds: 0.05, max_delay_seconds: 0.6, retryable_status_codes: [429, 500, 502, 503] }
`;
writeFileSync("parcels.yaml", `pipeline:
  id: parcels-of-eight-towns
${policy}  tolerance: { max_null_rate: 0.05, halt_on_geometry_invalid: false }
  source: { file: parcels.geojsonl, batch_size: 60 }
  services: { register: { url: "CHAOS/ogc" } }
  steps:
    - http: { service: register, path: "/collections/parcels/items/parcels.{id}", take: { kind: /geometry/type, fid: /id }, no_match: keep }
  gates:
    - { check: range, fields: [area], min: 0, max: 880 }
  sink: { file: parcels.gpkg, key: [id] }
`);
writeFileSync("halted.yaml", `pipeline:
  id: halted-by-a-gate
${policy}  tolerance: { max_null_rate: 0.001, halt_on_geometry_invalid: false }
  source: { file: parcels.geojsonl, batch_size: 100 }
  sink: { file: halted.gpkg, key: [id] }
`);
const lettered = (id, gate) => `pipeline:
  id: ${id}
${policy}  tolerance: { max_null_rate: 0.05, halt_on_geometry_invalid: false }
  source: { file: parcels.geojsonl, batch_size: 60 }
  dead_letters: {}
  gates:
    - { check: range, fields: [area], min: 0, max: ${gate} }
  sink: { file: ${id}.gpkg, key: [id] }
`;
writeFileSync("lettered.yaml", lettered("parcels-with-letters", 880));
writeFileSync("suspended.yaml", lettered("parcels-that-all-fail", 1));
