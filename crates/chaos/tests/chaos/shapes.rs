//! The bodies of each provider.

use serde_json::{Value, json};
use tidegate_chaos::{Config, world};

use crate::client::{call, get, start};

fn pointer(value: &Value, path: &str) -> Value {
    value.pointer(path).cloned().unwrap_or_else(|| panic!("no {path} in {value}"))
}

#[test]
fn each_geocoder_puts_the_same_place_into_its_own_shape() {
    let (server, _) = start(Config { seed: 3, ..Config::default() });
    let place = world::place(3, "1 Main Street");
    let (lat, lon) = (json!(place.lat), json!(place.lon));
    for (target, at_lat, at_lon) in [
        ("/geocode?q=1+Main+Street", "/results/0/lat", "/results/0/lon"),
        (
            "/arcgis/rest/services/World/GeocodeServer/findAddressCandidates?SingleLine=1+Main+Street",
            "/candidates/0/location/y",
            "/candidates/0/location/x",
        ),
        (
            "/census/geocoder/locations/onelineaddress?address=1+Main+Street",
            "/result/addressMatches/0/coordinates/y",
            "/result/addressMatches/0/coordinates/x",
        ),
        ("/csv2geo/v1/geocode?q=1%20Main%20Street", "/results/0/location/lat", "/results/0/location/lng"),
        (
            "/google/maps/api/geocode/json?address=1+Main+Street",
            "/results/0/geometry/location/lat",
            "/results/0/geometry/location/lng",
        ),
        (
            "/pelias/v1/search?text=1+Main+Street",
            "/features/0/geometry/coordinates/1",
            "/features/0/geometry/coordinates/0",
        ),
        (
            "/photon/api?q=1+MAIN++street",
            "/features/0/geometry/coordinates/1",
            "/features/0/geometry/coordinates/0",
        ),
        (
            "/mapbox/geocoding/v5/mapbox.places/1%20Main%20Street.json",
            "/features/0/center/1",
            "/features/0/center/0",
        ),
        (
            "/mapbox/search/geocode/v6/forward?q=1+Main+Street",
            "/features/0/properties/coordinates/latitude",
            "/features/0/properties/coordinates/longitude",
        ),
        ("/opencage/geocode/v1/json?q=1+Main+Street", "/results/0/geometry/lat", "/results/0/geometry/lng"),
        ("/here/v1/geocode?q=1+Main+Street&at=1,2", "/items/0/position/lat", "/items/0/position/lng"),
    ] {
        let got = get(&server, target);
        assert_eq!(got.status, 200, "{target}");
        assert_eq!((pointer(&got.json(), at_lat), pointer(&got.json(), at_lon)), (lat.clone(), lon.clone()));
    }
    let nominatim = get(&server, "/nominatim/search?q=1+Main+Street&format=jsonv2").json();
    assert_eq!(pointer(&nominatim, "/0/lat"), json!(place.lat.to_string()));
    let parts = get(&server, "/nominatim/search?street=1+Main+Street&city=X").json();
    assert_eq!(pointer(&parts, "/0/lon"), json!(world::place(3, "1 Main Street, X").lon.to_string()));
}

#[test]
fn each_geocoder_has_its_own_nothing() {
    let (server, _) = start(Config { no_match: 1.0, ..Config::default() });
    for (target, at, nothing) in [
        ("/geocode?q=a", "/results", json!([])),
        ("/google/maps/api/geocode/json?address=a", "/status", json!("ZERO_RESULTS")),
        ("/nominatim/search?q=a", "", json!([])),
        ("/nominatim/reverse?lat=1&lon=2", "", json!({"error": "Unable to geocode"})),
        ("/pelias/v1/search?text=a", "/features", json!([])),
        ("/photon/api?q=a", "/features", json!([])),
        ("/mapbox/search/geocode/v6/forward?q=a", "/features", json!([])),
        ("/opencage/geocode/v1/json?q=a", "/results", json!([])),
        ("/here/v1/geocode?q=a", "/items", json!([])),
        ("/arcgis/x/findAddressCandidates?SingleLine=a", "/candidates", json!([])),
        ("/arcgis/x/reverseGeocode?location=1,2", "/error/code", json!(400)),
        ("/census/geocoder/locations/onelineaddress?address=a", "/result/addressMatches", json!([])),
    ] {
        let got = get(&server, target);
        assert_eq!((got.status, pointer(&got.json(), at)), (200, nothing), "{target}");
    }
    assert_eq!(server.stats().no_match, 12);
}

#[test]
fn each_geocoder_answers_for_a_point() {
    let (server, _) = start(Config { seed: 3, ..Config::default() });
    let label = json!(world::reverse(3, 51.5, -0.125).label);
    for (target, at) in [
        ("/reverse?lat=51.5&lon=-0.125", "/results/0/label"),
        ("/arcgis/x/reverseGeocode?location=-0.125,51.5", "/address/LongLabel"),
        ("/google/maps/api/geocode/json?latlng=51.5,-0.125", "/results/0/formatted_address"),
        ("/nominatim/reverse?lat=51.5&lon=-0.125", "/display_name"),
        ("/pelias/v1/reverse?point.lat=51.5&point.lon=-0.125", "/features/0/properties/label"),
        ("/photon/reverse?lon=-0.125&lat=51.5", "/features/0/properties/name"),
        ("/mapbox/geocoding/v5/mapbox.places/-0.125,51.5.json", "/features/0/place_name"),
        (
            "/mapbox/search/geocode/v6/reverse?longitude=-0.125&latitude=51.5",
            "/features/0/properties/full_address",
        ),
        ("/opencage/geocode/v1/json?q=51.5,-0.125", "/results/0/formatted"),
        ("/here/v1/revgeocode?at=51.5,-0.125", "/items/0/title"),
    ] {
        assert_eq!(pointer(&get(&server, target).json(), at), label, "{target}");
    }
    assert_eq!(get(&server, "/reverse?lat=91&lon=0").status, 400);
    assert_eq!(get(&server, "/geocode").status, 400);
}

#[test]
fn batches_answer_row_by_row() {
    let (server, _) = start(Config { bad_rows: 0.3, no_match: 0.3, seed: 8, ..Config::default() });
    let rows: String = (0..40).map(|i| format!("{i},{i} Main Street,Northport,XX,12345\n")).collect();
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"addressFile\"; filename=\"a.csv\"\r\n\r\n{rows}\r\n--b--\r\n"
    );
    let form = "Content-Type: multipart/form-data; boundary=b\r\n";
    let got = call(&server, "POST", "/census/geocoder/locations/addressbatch", form, &body);
    assert_eq!((got.status, got.body.lines().count()), (200, 40));
    let count = |word: &str| got.body.lines().filter(|line| line.contains(word)).count();
    assert_eq!(count("\"Match\",\"Exact\"") + count("\"No_Match\"") + count("\"Tie\""), 40);
    assert!(count("\"No_Match\"") > 3 && count("\"Tie\"") > 3, "{}", got.body);

    let body =
        json!({"addresses": (0..10).map(|i| format!("{i} Main Street")).collect::<Vec<_>>()}).to_string();
    let got = call(&server, "POST", "/geocode", "Content-Type: application/json\r\n", &body);
    assert_eq!(got.json()["batch"].as_array().map(Vec::len), Some(10));
}

fn layer() -> Config {
    Config { features: 25, page_max: 10, seed: 1, ..Config::default() }
}

#[test]
fn wfs_pages_in_both_versions_and_formats() {
    let (server, _) = start(layer());
    let two = "/wfs?service=WFS&version=2.0.0&request=GetFeature&typeNames=tide:parcels";
    let hits = get(&server, &format!("{two}&resultType=hits")).body;
    assert!(hits.contains("numberMatched=\"25\" numberReturned=\"0\""), "{hits}");
    let page = get(&server, &format!("{two}&startIndex=20&count=10")).body;
    assert!(page.contains("numberMatched=\"25\" numberReturned=\"5\""), "{page}");
    assert!(page.contains("gml:id=\"parcels.21\"") && page.contains("gml:id=\"parcels.25\""));
    // The server gives no more than its own maximum, whatever is asked.
    assert!(get(&server, &format!("{two}&count=1000")).body.contains("numberReturned=\"10\""));
    let down = get(&server, &format!("{two}&count=1&sortBy=id+D&outputFormat=application/json")).json();
    assert_eq!(
        (pointer(&down, "/features/0/id"), pointer(&down, "/numberMatched")),
        (json!("parcels.25"), json!(25))
    );
    let old = "/wfs?service=WFS&version=1.1.0&request=GetFeature&typeName=parcels";
    assert!(get(&server, &format!("{old}&resultType=hits")).body.contains("numberOfFeatures=\"25\""));
    assert!(get(&server, &format!("{old}&maxFeatures=3")).body.contains("numberOfFeatures=\"3\""));
    let lat_first = get(&server, &format!("{two}&count=1")).body;
    assert!(lat_first.contains("<gml:posList>40 -5 "), "{lat_first}");
    let lon_first = get(&server, &format!("{two}&count=1&srsName=EPSG:4326")).body;
    assert!(lon_first.contains("<gml:posList>-5 40 "), "{lon_first}");
    for (target, sign) in [
        ("/wfs?request=GetCapabilities", "<wfs:Name>tide:parcels</wfs:Name>"),
        ("/wfs?request=DescribeFeatureType", "xsd:schema"),
        ("/wfs?request=GetFeature&typeNames=none", "exceptionCode=\"InvalidParameterValue\""),
        ("/wfs", "exceptionCode=\"MissingParameterValue\""),
    ] {
        assert!(get(&server, target).body.contains(sign), "{target}");
    }
    let (server, _) = start(Config { unknown_total: true, ..layer() });
    assert!(get(&server, two).body.contains("numberMatched=\"unknown\""));
}

#[test]
fn ogc_pages_are_followed_by_links_to_the_end() {
    let (server, _) = start(layer());
    let mut target = "/ogc/collections/parcels/items?limit=10".to_owned();
    let mut ids = Vec::new();
    loop {
        let page = get(&server, &target).json();
        assert_eq!(page["numberMatched"], 25);
        ids.extend(
            page["features"].as_array().unwrap().iter().map(|f| f["properties"]["id"].as_u64().unwrap()),
        );
        let links = page["links"].as_array().unwrap();
        let Some(next) = links.iter().find(|link| link["rel"] == "next") else { break };
        target = next["href"].as_str().unwrap().strip_prefix("http://localhost").unwrap().to_owned();
    }
    assert_eq!(ids, (1..=25).collect::<Vec<u64>>());
    let forged = get(&server, "/ogc/collections/parcels/items?cursor=a-00000000");
    assert_eq!((forged.status, forged.header("content-type")), (400, Some("application/problem+json")));
    assert_eq!(get(&server, "/ogc/collections/parcels/items/7").json()["id"], "parcels.7");
    assert_eq!(get(&server, "/ogc/collections/parcels/items/26").status, 404);
    assert_eq!(pointer(&get(&server, "/ogc/collections").json(), "/collections/0/id"), json!("parcels"));
}

#[test]
fn arcgis_pages_counts_and_lists() {
    let (server, _) = start(layer());
    let query = "/arcgis/rest/services/parcels/FeatureServer/0/query?f=json";
    let ask = |more: &str| get(&server, &format!("{query}&{more}")).json();
    let ids = |value: &Value| -> Vec<u64> {
        value["features"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f["attributes"]["OBJECTID"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(ask("where=1%3D1&returnCountOnly=true"), json!({"count": 25}));
    let all: Vec<u64> = (1..=25).collect();
    assert_eq!(ask("where=1%3D1&returnIdsOnly=true")["objectIds"], json!(all));
    let first = ask("where=1%3D1&resultOffset=0&resultRecordCount=100");
    assert_eq!((ids(&first).len(), &first["exceededTransferLimit"]), (10, &json!(true)));
    let last = ask("where=1%3D1&resultOffset=20");
    assert_eq!((ids(&last), &last["exceededTransferLimit"]), ((21..=25).collect(), &Value::Null));
    assert_eq!(ids(&ask("where=OBJECTID+%3E%3D+3+AND+OBJECTID+%3C%3D+5")), [3, 4, 5]);
    assert_eq!(ids(&ask("where=OBJECTID%3E23")), [24, 25]);
    assert_eq!(ids(&ask("where=OBJECTID+BETWEEN+3+AND+4")), [3, 4]);
    assert_eq!(ids(&ask("where=OBJECTID+IN+(9,2,99)")), [9, 2]);
    assert_eq!(ids(&ask("objectIds=4,5")), [4, 5]);
    assert_eq!(ids(&ask("where=1%3D1&orderByFields=OBJECTID+DESC&resultRecordCount=2")), [25, 24]);
    assert_eq!(ask("where=DROP+TABLE")["error"]["code"], 400);
    assert_eq!(ask("where=1%3D1&resultOffset=x")["error"]["code"], 400);
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let path = query.split('?').next().unwrap();
    let posted = call(&server, "POST", path, form, "where=1%3D1&returnCountOnly=true&f=json");
    assert_eq!(posted.json(), json!({"count": 25}));
    let geojson = get(&server, &format!("{path}?where=1%3D1&f=geojson")).json();
    assert_eq!(pointer(&geojson, "/properties/exceededTransferLimit"), json!(true));
    assert_eq!(pointer(&geojson, "/features/0/geometry/type"), json!("Polygon"));
    let about = get(&server, "/arcgis/rest/services/parcels/FeatureServer/0?f=json").json();
    assert_eq!(about["maxRecordCount"], 10);
}

#[test]
fn objects_are_put_listed_and_deleted() {
    let (server, _) = start(Config::default());
    let put = |key: &str, body: &str| call(&server, "PUT", &format!("/s3/bucket/{key}"), "", body);
    let first = put("a/1", "hello");
    assert_eq!(first.status, 200);
    assert_eq!(put("a/2", "hello").header("etag"), first.header("etag"));
    assert_ne!(put("b/1", "other").header("etag"), first.header("etag"));
    let head = call(&server, "HEAD", "/s3/bucket/a/1", "", "");
    assert_eq!((head.status, head.header("content-length"), head.body.as_str()), (200, Some("5"), ""));
    assert_eq!(get(&server, "/s3/bucket/a/1").body.len(), 5);
    let page = get(&server, "/s3/bucket?list-type=2&prefix=a/&max-keys=1").body;
    assert!(page.contains("<Key>a/1</Key>") && page.contains("<IsTruncated>true</IsTruncated>"), "{page}");
    let page = get(&server, "/s3/bucket?list-type=2&prefix=a/&continuation-token=a/1").body;
    assert!(page.contains("<Key>a/2</Key>") && page.contains("<IsTruncated>false</IsTruncated>"), "{page}");
    assert_eq!(call(&server, "DELETE", "/s3/bucket/a/1", "", "").status, 204);
    let gone = get(&server, "/s3/bucket/a/1");
    assert_eq!((gone.status, gone.body.contains("<Code>NoSuchKey</Code>")), (404, true));
    let begun = call(&server, "POST", "/s3/bucket/big?uploads", "", "").body;
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
    for part in 1..=2 {
        let target = format!("/s3/bucket/big?partNumber={part}&uploadId={id}");
        assert_eq!(call(&server, "PUT", &target, "", "12345").status, 200);
    }
    assert_eq!(call(&server, "POST", &format!("/s3/bucket/big?uploadId={id}"), "", "<x/>").status, 200);
    assert_eq!(call(&server, "HEAD", "/s3/bucket/big", "", "").header("content-length"), Some("10"));
    assert_eq!(get(&server, "/__stats").json()["objects"], 3);
}

#[test]
fn a_throttled_store_says_slow_down() {
    let limit = tidegate_chaos::spec::throttle("fixed:1/1s").unwrap();
    let (server, _) = start(Config { limit, ..Config::default() });
    call(&server, "PUT", "/s3/bucket/a", "", "x");
    let got = call(&server, "PUT", "/s3/bucket/b", "", "x");
    assert_eq!((got.status, got.body.contains("<Code>SlowDown</Code>")), (503, true));
}
