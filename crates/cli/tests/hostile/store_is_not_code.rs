//! A store is never code: what a letter store, a checkpoint or a list of the state directory says is
//! shown and compared, and no command, address, directory or file of it is used. Whoever can write
//! letters plays with everything that a definition holds, in SQLite and in PostgreSQL.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::canned::{Canned, MATCH, json as answer};
use crate::running::{Ran, Running};
use crate::workdir::Workdir;

/// Longer than anything here takes; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

const POLICY: &str = "
  retry_policy: { max_attempts: 1, base_delay: 10ms, retryable_status_codes: [503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
";

/// A directory and a store of letters that somebody else can write.
struct Scene {
    dir: Workdir,
    /// The schema of the store in PostgreSQL; none is SQLite.
    schema: Option<String>,
}

fn server() -> String {
    std::env::var("TIDEGATE_TEST_DATABASE")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".to_owned())
}

fn client() -> postgres::Client {
    postgres::Client::connect(&server(), postgres::NoTls).unwrap()
}

impl Scene {
    /// One of each kind of store.
    fn each(name: &str) -> [Scene; 2] {
        let schema = format!("hostile_{name}_{}", std::process::id());
        client().batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).unwrap();
        [Scene::sqlite(), Scene { dir: Workdir::new(), schema: Some(schema) }]
    }

    fn sqlite() -> Scene {
        Scene { dir: Workdir::new(), schema: None }
    }

    fn store(&self) -> String {
        match &self.schema {
            None => ".tidegate/letters.db".to_owned(),
            Some(schema) => format!("{}?schema={schema}", server()),
        }
    }

    /// Writes a manifest of `parcels` with these sections.
    fn manifest(&self, file: &str, letters: &str, parts: &str) {
        let store = match &self.schema {
            None => String::new(),
            Some(_) => format!("store: \"{}\", ", self.store()),
        };
        self.dir.write(
            file,
            &format!(
                "pipeline:\n  id: parcels\n  dead_letters: {{ {store}incident_share: 1{letters} }}\n{parts}{POLICY}"
            ),
        );
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.dir.command(args);
        command.env("NO_COLOR", "1").env("COLUMNS", "300");
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    fn ends(&self, args: &[&str], code: i32) -> Ran {
        let ran = self.run(args);
        assert_eq!(ran.code, code, "{args:?}: {}\n{}", ran.stdout, ran.stderr);
        ran
    }

    fn dlq(&self, args: &[&str]) -> Ran {
        self.run(&[&["dlq", "--store", &self.store()], args].concat())
    }

    /// Letters by state, in the order of their ids.
    fn states(&self) -> Vec<String> {
        let ran = self.dlq(&["ls", "--closed", "--oldest", "--format", "json"]);
        let letters = ran.json();
        letters.as_array().unwrap().iter().map(|l| l["state"].as_str().unwrap().to_owned()).collect()
    }

    /// Runs SQL on the store, as somebody who can write letters can; `?` stands for the text.
    fn sql(&self, sql: &str, text: &str) {
        match &self.schema {
            None => {
                let db = rusqlite::Connection::open(self.dir.path(".tidegate/letters.db")).unwrap();
                let args: &[&dyn rusqlite::ToSql] = if sql.contains('?') { &[&text] } else { &[] };
                db.execute(sql, args).unwrap();
            }
            Some(schema) => {
                let mut client = client();
                client.batch_execute(&format!("SET search_path TO {schema}")).unwrap();
                let args: &[&(dyn postgres::types::ToSql + Sync)] =
                    if sql.contains('?') { &[&text] } else { &[] };
                client.execute(&sql.replace('?', "$1"), args).unwrap();
            }
        }
    }

    /// Changes the definition in the store.
    fn tamper(&self, change: impl FnOnce(&mut Value)) {
        let text: String = match &self.schema {
            None => {
                let db = rusqlite::Connection::open(self.dir.path(".tidegate/letters.db")).unwrap();
                db.query_row("SELECT spec FROM pipeline", [], |row| row.get(0)).unwrap()
            }
            Some(schema) => {
                client().query_one(&format!("SELECT spec FROM {schema}.pipeline"), &[]).unwrap().get(0)
            }
        };
        let mut definition: Value = serde_json::from_str(&text).unwrap();
        change(&mut definition);
        assert_ne!(definition.to_string(), text, "nothing was changed");
        self.sql("UPDATE pipeline SET spec = ?", &definition.to_string());
    }

    /// `serve` until it says this; everything that it said until it was stopped.
    fn serve(&self, args: &[&str], until: &str) -> String {
        let words = [&["serve", "--listen", "127.0.0.1:0", "--every", "1s"], args].concat();
        let mut child = self.command(&words).stdout(Stdio::null()).spawn().unwrap();
        let words = child.stderr.take().unwrap();
        let server = Running::of(child);
        let (tell, told) = channel();
        let reader = std::thread::spawn(move || {
            let mut all = String::new();
            for line in BufReader::new(words).lines().map_while(Result::ok) {
                all.push_str(&line);
                all.push('\n');
                // Nobody listens any more once the word came.
                let _ = tell.send(line);
            }
            all
        });
        let end = Instant::now() + PATIENCE;
        let wait = || told.recv_timeout(end.saturating_duration_since(Instant::now()));
        let is_said = std::iter::from_fn(|| wait().ok()).any(|line| line.contains(until));
        server.signal("TERM");
        let all = reader.join().unwrap();
        assert!(is_said, "no {until:?} in {all}");
        assert_eq!(server.end().code, 0, "{all}");
        all
    }

    fn audit(&self) -> Ran {
        self.run(&["audit", "verify", "--store", &self.store()])
    }

    /// The files whose names hold this, anywhere below the directory.
    fn found(&self, name: &str) -> Vec<String> {
        let files = self.dir.files().into_iter().map(|path| path.display().to_string());
        files.filter(|path| path.contains(name)).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(schema) = &self.schema {
            let _ = client().batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        }
    }
}

fn feature(id: u32, ring: &str) -> String {
    format!(
        "{{\"type\":\"Feature\",\"properties\":{{\"id\":{id}}},\"geometry\":{{\"type\":\"Polygon\",\"coordinates\":[[{ring}]]}}}}\n"
    )
}

/// A square and a bow tie, which a gate rejects.
fn polygons() -> String {
    feature(1, "[1,1],[2,1],[2,2],[1,2],[1,1]") + &feature(2, "[3,1],[4,2],[4,1],[3,2],[3,1]")
}

const POLYGONS: &str = "  source: { file: in.geojsonl }
  gates: [{ check: is_valid, severity: reject }]
  sink: { file: out.gpkg, key: [id] }";

const REMEDIES: &str = ", remedies: [{ rule: make_valid, tolerance: 1 }]";

/// A letter about the bow tie.
fn bow_tie(scene: &Scene) {
    scene.dir.write("in.geojsonl", &polygons());
    scene.manifest("m.yaml", REMEDIES, POLYGONS);
    scene.ends(&["run", "m.yaml"], 4);
    assert_eq!(scene.states(), ["captured"]);
}

/// What the attacker wants to be run.
fn commanding(definition: &mut Value) {
    let command = json!({ "rule": "command", "command": ["sh", "-c", "id > PWNED; cat"] });
    let letters = &mut definition["manifest"]["pipeline"]["dead_letters"];
    letters["remedies"] = json!([command]);
    letters["auto"] = json!([{ "code": "INVALID_GEOMETRY", "remedy": "command", "replay": true }]);
}

/// A service that refuses `bad` until it is kind, and one that nobody named.
fn services() -> (Canned, Arc<AtomicBool>, Canned) {
    let kind = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&kind);
    let good = Canned::start(move |head| {
        let is_bad = head.lines().next().is_some_and(|line| line.contains("bad"));
        if is_bad && !told.load(Ordering::SeqCst) {
            return answer("422 Unprocessable Content", "{}");
        }
        answer("200 OK", MATCH)
    });
    (good, kind, Canned::matching())
}

fn geocoding(url: &str) -> String {
    format!(
        "  source: {{ file: in.csv, crs: EPSG:4326 }}
  services: {{ g: {{ profile: generic, url: \"{url}\" }} }}
  steps: [{{ geocode: {{ service: g, address: [street] }} }}]
  sink: {{ file: out.gpkg, key: [id] }}"
    )
}

/// A letter about an address that the service refused.
fn refused_address(scene: &Scene, good: &Canned) {
    scene.dir.write("in.csv", "id,street\n1,good\n2,bad\n");
    scene.manifest("m.yaml", "", &geocoding(&good.url()));
    scene.ends(&["run", "m.yaml"], 4);
    assert_eq!(scene.states(), ["captured"]);
}

/// Another service, another sink.
fn leading_away(definition: &mut Value, evil: &Canned, scene: &Scene) {
    let pipeline = &mut definition["manifest"]["pipeline"];
    pipeline["services"]["g"]["url"] = evil.url().into();
    pipeline["sink"]["file"] = scene.dir.path("stolen.gpkg").display().to_string().into();
}

#[test]
fn a_rule_of_a_store_runs_no_command() {
    for scene in Scene::each("rules") {
        bow_tie(&scene);
        assert_eq!(scene.audit().code, 0, "{}", scene.audit().stdout);
        scene.tamper(commanding);
        let place = ["--dead-letters", &scene.store()];
        let said = scene.serve(&place, "no --manifest: letters are shown, and none is repaired or replayed");
        assert!(!said.contains("letters repaired"), "{said}");
        let named = [&place[..], &["--manifest", "m.yaml"]].concat();
        let said = scene.serve(&named, "monitoring");
        let differs =
            "the definition of parcels in the store differs from m.yaml in dead_letters; m.yaml applies";
        assert!(said.contains(differs) && !said.contains("letters repaired"), "{said}");
        let doctor = scene.run(&["doctor", "m.yaml"]);
        assert!(doctor.stdout.contains("differs from this manifest in dead_letters"), "{}", doctor.stdout);
        let audit = scene.audit();
        assert_eq!(audit.code, 1, "{}", audit.stdout);
        let found = "NOT AS SIGNED: the definition of parcels was changed after it was signed with entry";
        assert!(audit.stdout.contains(found), "{}", audit.stdout);
        let checked = scene.dlq(&["audit", "--verify"]);
        assert_eq!((checked.code, checked.json()["not_as_signed"].as_array().unwrap().len()), (1, 1));
        // Not by the run that finds it, which writes its own definition.
        scene.ends(&["run", "m.yaml"], 4);
        assert_eq!((scene.found("PWNED"), scene.states()), (Vec::new(), vec!["captured".to_owned()]));
        assert_eq!(scene.audit().code, 0, "{}", scene.audit().stdout);
    }
}

#[test]
fn a_rule_of_a_named_manifest_runs_its_command() {
    let scene = Scene::sqlite();
    bow_tie(&scene);
    let square = feature(2, "[3,1],[4,1],[4,2],[3,1]");
    scene.dir.write("mended.json", &square);
    let command = "{ rule: command, command: [sh, -c, \"id > NAMED; cat mended.json\"] }";
    let auto = "{ code: INVALID_GEOMETRY, remedy: command, replay: false }";
    scene.manifest("m.yaml", &format!(", remedies: [{command}], auto: [{auto}]"), POLYGONS);
    scene.serve(&["--manifest", "m.yaml"], "1 letters repaired");
    assert_eq!((scene.found("NAMED").len(), scene.states()), (1, vec!["validated".to_owned()]));
}

#[test]
fn a_replay_calls_no_service_and_writes_no_sink_of_a_store() {
    for scene in Scene::each("replay") {
        let (good, kind, evil) = services();
        refused_address(&scene, &good);
        let asked = good.seen().len();
        // Not even of a definition that nobody changed.
        let refused = scene.dlq(&["replay", "--all"]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(
            refused.stderr.contains("name the manifest of parcels with --manifest"),
            "{}",
            refused.stderr
        );
        scene.tamper(|definition| leading_away(definition, &evil, &scene));
        assert_eq!(scene.dlq(&["replay", "--all"]).code, 2);
        // The manifest of another pipeline is none of this one.
        scene.dir.write("other.yaml", &scene.dir.read("m.yaml").replace("id: parcels", "id: roads"));
        let other = ["replay", "--manifest", "other.yaml"];
        let left = scene.dlq(&other);
        assert!(left.code == 0 && left.stderr.contains("1 letter of parcels left out"), "{}", left.stderr);
        let pointed = scene.dlq(&[&other[..], &["--pipeline", "parcels"]].concat());
        assert_eq!(pointed.code, 2, "{}", pointed.stderr);
        assert_eq!((good.seen().len(), scene.states()), (asked, vec!["captured".to_owned()]));
        kind.store(true, Ordering::SeqCst);
        let replayed = scene.dlq(&["replay", "--manifest", "m.yaml", "--verify"]);
        assert_eq!(replayed.code, 0, "{}", replayed.stderr);
        assert!(
            replayed.stderr.contains("differs from m.yaml in services, sink; m.yaml applies"),
            "{}",
            replayed.stderr
        );
        assert_eq!((good.seen().len(), evil.connections()), (asked + 1, 0));
        assert_eq!((scene.found("stolen"), scene.states()), (Vec::new(), vec!["resolved".to_owned()]));
    }
}

#[test]
fn a_replay_that_is_resumed_needs_its_manifest_too() {
    let scene = Scene::sqlite();
    let (good, kind, evil) = services();
    refused_address(&scene, &good);
    let replay = ["dlq", "replay", "--manifest", "m.yaml"];
    let killed = scene.command(&replay).env("TIDEGATE_CRASH", "replay:0").output().unwrap();
    assert_eq!(killed.status.code(), None);
    scene.tamper(|definition| leading_away(definition, &evil, &scene));
    kind.store(true, Ordering::SeqCst);
    let resume = ["replay", "--resume", "1"];
    let refused = scene.dlq(&resume);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    let resumed = scene.dlq(&[&resume[..], &["--manifest", "m.yaml"]].concat());
    assert_eq!((resumed.code, evil.connections()), (0, 0), "{}", resumed.stderr);
    assert_eq!((scene.found("stolen"), scene.states()), (Vec::new(), vec!["resolved".to_owned()]));
}

#[test]
fn the_remedies_of_a_run_use_its_own_manifest() {
    for scene in Scene::each("remedies") {
        let (good, kind, evil) = services();
        refused_address(&scene, &good);
        scene.manifest("m.yaml", ", auto: [{ code: UNPROCESSABLE }]", &geocoding(&good.url()));
        scene.tamper(|definition| leading_away(definition, &evil, &scene));
        kind.store(true, Ordering::SeqCst);
        // Before anything is read, nobody is there to look at a definition that was changed. It is that
        // of the run from then on.
        let ran = scene.run(&["run", "m.yaml", "--format", "json"]);
        assert_eq!((ran.code, &ran.json()["remedied"]), (0, &Value::Null), "{}", ran.stderr);
        assert!(ran.stderr.contains("parcels was changed after it was signed"), "{}", ran.stderr);
        let ran = scene.run(&["run", "m.yaml", "--format", "json"]);
        assert_eq!((ran.code, &ran.json()["remedied"]["resolved"]), (0, &json!(1)), "{}", ran.stderr);
        assert_eq!((evil.connections(), scene.found("stolen")), (0, Vec::new()));
    }
}

/// To ask a sink of another place is to connect to it.
#[test]
fn a_remedy_and_an_edit_ask_no_sink_of_a_store() {
    for scene in Scene::each("fix") {
        bow_tie(&scene);
        let evil = Canned::matching();
        scene.tamper(|definition| {
            let url = format!("postgres://somebody@127.0.0.1:{}/test", evil.port());
            let table = json!({ "url": url, "schema": "public", "table": "out" });
            definition["manifest"]["pipeline"]["sink"] = json!({ "postgis": table, "key": ["id"] });
        });
        let fix = ["fix", "--rule", "make_valid", "--tolerance", "1", "--all"];
        let refused = scene.dlq(&fix);
        assert_eq!((refused.code, evil.connections()), (2, 0), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("name the manifest of parcels with --manifest"),
            "{}",
            refused.stderr
        );
        let ls = scene.dlq(&["ls", "--format", "json"]).json();
        let id = ls[0]["id"].as_str().unwrap();
        let mended = "{\"type\":\"Feature\",\"properties\":{\"id\":2},\"geometry\":{\"type\":\"Point\",\"coordinates\":[3,1]}}";
        scene.dir.write("mended.json", mended);
        let edit = ["edit", id, "--from", "mended.json"];
        let refused = scene.dlq(&edit);
        assert_eq!((refused.code, evil.connections()), (2, 0), "{}", refused.stderr);
        assert_eq!(scene.states(), ["captured"]);
        let asked = scene.dlq(&[&edit[..], &["--manifest", "m.yaml"]].concat());
        assert!(asked.stderr.contains("holds Polygon and cannot hold a Point"), "{}", asked.stderr);
        let fixed = scene.dlq(&[&fix[..], &["--manifest", "m.yaml"]].concat());
        assert_eq!((fixed.code, evil.connections()), (0, 0), "{}", fixed.stderr);
        assert_eq!(scene.states(), ["validated"]);
    }
}

#[test]
fn a_state_directory_of_a_store_is_not_made_and_not_used() {
    for scene in Scene::each("state") {
        let (good, kind, _) = services();
        refused_address(&scene, &good);
        scene.manifest("m.yaml", ", auto: [{ code: UNPROCESSABLE }]", &geocoding(&good.url()));
        let elsewhere = scene.dir.path("elsewhere").display().to_string();
        scene.tamper(|definition| {
            definition["state"] = elsewhere.clone().into();
            definition["folder"] = elsewhere.clone().into();
        });
        kind.store(true, Ordering::SeqCst);
        let refused = scene.dlq(&["replay", "--manifest", "m.yaml"]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains("name it with --state-dir"), "{}", refused.stderr);
        let named = ["--manifest", "m.yaml", "--dead-letters", &scene.store()];
        let said = scene.serve(&named, "its letters are not replayed; name it with --state");
        assert!(!said.contains("resolved"), "{said}");
        let replayed = scene.dlq(&["replay", "--manifest", "m.yaml", "--state-dir", ".tidegate"]);
        assert_eq!(replayed.code, 0, "{}", replayed.stderr);
        assert!(
            replayed.stderr.contains("used the state directory") && !scene.dir.path("elsewhere").exists()
        );
    }
}

#[test]
fn the_output_of_a_capture_is_named_by_a_person() {
    let scene = Scene::sqlite();
    scene.dir.write("parcels.geojson", &polygons());
    let capture = ["dlq", "capture", "parcels.geojson", "--into", "out.geojson"];
    scene.ends(&capture, 4);
    let stolen = scene.dir.path("stolen.geojson").display().to_string();
    scene.tamper(|definition| definition["output"] = stolen.clone().into());
    scene.ends(&["dlq", "fix", "--rule", "make_valid", "--tolerance", "1", "--all"], 0);
    let refused = scene.ends(&["dlq", "replay", "--all"], 2);
    assert!(refused.stderr.contains("with --into FILE"), "{}", refused.stderr);
    let replayed = scene.ends(&["dlq", "replay", "--into", "out.geojson", "--all", "--verify"], 0);
    assert!(replayed.stderr.contains("stolen.geojson according to the store"), "{}", replayed.stderr);
    assert_eq!((scene.found("stolen"), scene.states()), (Vec::new(), vec!["resolved".to_owned()]));
}

#[test]
fn a_place_of_a_store_gets_no_archive() {
    for scene in Scene::each("archive") {
        bow_tie(&scene);
        let stolen = scene.dir.path("stolen").display().to_string();
        scene.sql("INSERT INTO meta (name, value) VALUES ('archive', ?)", &stolen);
        scene.sql("UPDATE letter SET retain_ms = 1", "");
        let listed = scene.dlq(&["ls"]);
        assert!(listed.stderr.contains("1 open letter past the retention period stay"), "{}", listed.stderr);
        scene.serve(&["--dead-letters", &scene.store()], "monitoring");
        scene.ends(&["run", "m.yaml"], 4);
        assert!(!scene.dir.path("stolen").exists());
        // A manifest says where to.
        scene.sql("UPDATE letter SET retain_ms = 1", "");
        scene.manifest("m.yaml", ", archive: cold", POLYGONS);
        scene.serve(&["--dead-letters", &scene.store(), "--manifest", "m.yaml"], "purged 1 letter");
        assert!(scene.dir.path("cold").exists() && !scene.dir.path("stolen").exists());
    }
}

#[test]
fn what_nobody_signed_is_found() {
    for scene in Scene::each("signed") {
        bow_tie(&scene);
        let is_found = |what: &str| {
            let audit = scene.audit();
            assert_eq!(audit.code, 1, "{what}: {}", audit.stdout);
            assert!(audit.stdout.contains(what), "{what}: {}", audit.stdout);
        };
        scene.sql("INSERT INTO pipeline (pipeline, spec) VALUES ('roads', ?)", "{\"kind\":\"manifest\"}");
        is_found("the definition of roads was signed by nobody");
        scene.sql("DELETE FROM pipeline WHERE pipeline = 'roads'", "");
        assert_eq!(scene.audit().code, 0);
        // New letters would be sealed for whoever has the key to this.
        scene.sql("INSERT INTO meta (name, value) VALUES ('recipient', ?)", "age1somebody");
        is_found("the setting recipient was signed by nobody");
        scene.sql("DELETE FROM meta WHERE name = 'recipient'", "");
        scene.ends(&["dlq", "--store", &scene.store(), "capacity", "10"], 0);
        assert_eq!(scene.audit().code, 0);
        scene.sql("UPDATE meta SET value = ? WHERE name = 'capacity'", "1");
        is_found("the setting capacity was changed after it was signed");
        scene.sql("UPDATE meta SET value = ? WHERE name = 'capacity'", "10");
        scene.sql("DELETE FROM pipeline", "");
        is_found("the definition of parcels, which was signed with entry");
    }
}

/// The list of rasters in the state directory tells which there were, not what may be opened.
#[test]
fn a_list_of_the_state_directory_adds_no_file() {
    let scene = Scene::sqlite();
    std::fs::create_dir(scene.dir.path("scenes")).unwrap();
    for n in 0..3 {
        scene.dir.write(&format!("scenes/{n}.tif"), "");
    }
    let parts = "  source: { rasters: [scenes], batch_size: 1 }\n  sink: { file: index.gpkg, key: [name] }";
    scene.manifest("m.yaml", "", parts);
    let killed = scene.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:0").output().unwrap();
    assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
    let list = ".tidegate/parcels/source/rasters.geojsonl";
    let good = scene.dir.read(list);
    scene.dir.write(list, &good.replace("/scenes/2.tif", "/../secret.tif"));
    let refused = scene.run(&["run", "m.yaml", "--resume"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    assert!(refused.stderr.contains("line 3 names"), "{}", refused.stderr);
    scene.dir.write(list, &good);
    scene.ends(&["run", "m.yaml", "--resume"], 0);
}

/// The position of a source in the checkpoint of its sink is a link that was judged when it came, and
/// is judged again.
#[test]
fn a_checkpoint_leads_to_no_other_host() {
    let scene = Scene::sqlite();
    let evil = Canned::matching();
    let config = tidegate_chaos::Config { features: 120, page_max: 50, ..tidegate_chaos::Config::default() };
    let server = tidegate_chaos::Chaos::start(config).unwrap();
    let parts = format!(
        "  services: {{ far: {{ url: \"{}/ogc\", profile: ogcapi }} }}\n  source: {{ service: far }}\n  sink: {{ file: out.gpkg, mode: append }}",
        server.url()
    );
    scene.manifest("m.yaml", "", &parts);
    let killed = scene.command(&["run", "m.yaml"]).env("TIDEGATE_CRASH", "commit:0").output().unwrap();
    assert_eq!(killed.status.code(), None, "{}", String::from_utf8_lossy(&killed.stderr));
    let staged = scene.found(".out.gpkg.stage").into_iter().find(|path| !path.ends_with("journal")).unwrap();
    let db = rusqlite::Connection::open(staged).unwrap();
    let good: String =
        db.query_row("SELECT checkpoint FROM tidegate_checkpoint", [], |row| row.get(0)).unwrap();
    assert!(good.contains(&server.url()), "{good}");
    let led = good.replace(&server.url(), &evil.url());
    db.execute("UPDATE tidegate_checkpoint SET checkpoint = ?1", [&led]).unwrap();
    drop(db);
    let refused = scene.run(&["run", "m.yaml", "--resume"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    assert!(refused.stderr.contains("link to the next page"), "{}", refused.stderr);
    assert_eq!(evil.connections(), 0, "{}", refused.stderr);
}

#[test]
fn views_and_triggers_of_a_store_are_not_executed() {
    const ENDLESS: &str = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)";
    let desk = crate::limits::Desk::new();
    desk.write("in.geojsonl", b"{\"type\":\"Feature\",\"properties\":{\"id\":\"x\"},\"geometry\":null}\n");
    desk.write(
        "m.yaml",
        b"pipeline:\n  id: p\n  source: { file: in.geojsonl }\n  steps: [{ coerce: { fields: { id: int } } }]
  sink: { file: out.geojsonl }\n  dead_letters: { store: letters.db, incident_share: 1.0 }
  retry_policy: { max_attempts: 2, base_delay: 10ms, retryable_status_codes: [503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }\n",
    );
    let _ = desk.faults(&["run", "m.yaml"], &[4]);
    let db = rusqlite::Connection::open(desk.path().join("letters.db")).unwrap();
    let letters: i64 = db.query_row("SELECT count(*) FROM letter", [], |row| row.get(0)).unwrap();
    assert_eq!(letters, 1);
    db.execute_batch(&format!(
        "CREATE TRIGGER evil BEFORE UPDATE ON letter BEGIN SELECT max(n) FROM ({ENDLESS} SELECT n FROM x); END;
         ALTER TABLE incident RENAME TO incident_old;
         CREATE VIEW incident AS {ENDLESS} SELECT o.* FROM x, incident_old o UNION ALL SELECT o.* FROM incident_old o"
    ))
    .unwrap();
    // Each ends by itself within the processor time of a desk; the trigger does nothing, and the view is refused.
    let held = desk.faults(&["dlq", "hold", "--store", "letters.db", "--all", "--why", "test"], &[0, 1, 2]);
    let listed = desk.faults(&["dlq", "incidents", "--store", "letters.db"], &[1, 2]);
    for fault in held.iter().chain(&listed) {
        assert!(fault.starts_with("the place is not named"), "{fault}");
    }
}
