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

// Zones around two mountains, for rasters.
const zones = [];
for (const [lon, lat] of [[14.8, 47.5], [12.6, 45.8]]) {
  for (let ring = 0; ring < 12; ring++) {
    const size = 0.75 - ring * 0.06;
    const corner = (i) => {
      const angle = (i % 40) * Math.PI / 20, wave = 1 + 0.18 * Math.sin(3 * angle + ring / 3);
      return [+(lon + Math.cos(angle) * size * wave).toFixed(5), +(lat + Math.sin(angle) * size * wave * 0.7).toFixed(5)];
    };
    const coordinates = [Array.from({ length: 41 }, (_, i) => corner(i))];
    zones.push({ type: "Feature", properties: { height: 300 + ring * 150 }, geometry: { type: "Polygon", coordinates } });
  }
}
writeFileSync("zones.geojson", JSON.stringify({ type: "FeatureCollection", features: zones }));
writeFileSync("rasters.yaml", `pipeline:
  id: scenes-of-two-mountains
${policy}  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
  dead_letters: {}
  source: { rasters: [scenes], batch_size: 1 }
  steps:
    - raster: { survey: true }
  gates:
    - { check: one_of, fields: [sample], values: [uint16] }
  sink: { file: scenes.gpkg, key: [name] }
`);
