//! Manifests for Kubernetes, written by hand: workers with their probes and a disruption budget, what they may
//! reach, and autoscalers, one for each broker.

/// The files.
pub(super) const FILES: &[(&str, &str)] = &[
    ("kubernetes/worker.yaml", include_str!("../../../../deploy/kubernetes/worker.yaml")),
    ("kubernetes/networkpolicy.yaml", include_str!("../../../../deploy/kubernetes/networkpolicy.yaml")),
    ("kubernetes/hpa.yaml", include_str!("../../../../deploy/kubernetes/hpa.yaml")),
    ("kubernetes/keda-redis.yaml", include_str!("../../../../deploy/kubernetes/keda-redis.yaml")),
    ("kubernetes/keda-rabbitmq.yaml", include_str!("../../../../deploy/kubernetes/keda-rabbitmq.yaml")),
    ("kubernetes/keda-nats.yaml", include_str!("../../../../deploy/kubernetes/keda-nats.yaml")),
    ("kubernetes/keda-sqs.yaml", include_str!("../../../../deploy/kubernetes/keda-sqs.yaml")),
    ("kubernetes/keda-pubsub.yaml", include_str!("../../../../deploy/kubernetes/keda-pubsub.yaml")),
    ("kubernetes/keda-kafka.yaml", include_str!("../../../../deploy/kubernetes/keda-kafka.yaml")),
    ("kubernetes/keda-postgresql.yaml", include_str!("../../../../deploy/kubernetes/keda-postgresql.yaml")),
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::deploy::files;

    /// The documents of a YAML file.
    fn documents(text: &str) -> Vec<Value> {
        let read = |document: &str| {
            serde_saphyr::from_str::<Value>(document).unwrap_or_else(|e| panic!("{e}\n{document}"))
        };
        text.split("\n---\n").map(read).collect()
    }

    fn all() -> Vec<(&'static str, Value)> {
        let each = |(path, text): &(&'static str, &'static str)| {
            documents(text).into_iter().map(|document| (*path, document)).collect::<Vec<_>>()
        };
        FILES.iter().flat_map(each).collect()
    }

    fn of_kind(kind: &str) -> Value {
        let found = all().into_iter().find(|(_, document)| document["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind}")).1
    }

    fn seconds(unit: &str, name: &str) -> u64 {
        let after = unit.split_once(name).unwrap_or_else(|| panic!("no {name}")).1;
        after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    }

    #[test]
    fn every_file_is_yaml_and_names_its_kind() {
        for (path, document) in all() {
            for field in ["/apiVersion", "/kind", "/metadata/name", "/spec"] {
                assert!(document.pointer(field).is_some(), "{path} has no {field}");
            }
        }
    }

    #[test]
    fn autoscalers_scale_the_deployment_of_workers() {
        let deployment = of_kind("Deployment");
        let mut scalers = 0;
        for (path, document) in all() {
            let target = &document["spec"]["scaleTargetRef"];
            if target.is_object() {
                assert_eq!(target["name"], deployment["metadata"]["name"], "{path}");
                scalers += 1;
            }
            for trigger in document["spec"]["triggers"].as_array().into_iter().flatten() {
                // KEDA takes texts only.
                let fields = trigger["metadata"].as_object().unwrap();
                assert!(fields.values().all(Value::is_string), "{path}: {fields:?}");
                let authentication = &trigger["authenticationRef"]["name"];
                let same = |(other, document): &(&str, Value)| {
                    *other == path && document["metadata"]["name"] == *authentication
                };
                assert!(authentication.is_null() || all().iter().any(same), "{path} has no {authentication}");
            }
        }
        // All but the workers themselves and what they may reach.
        assert_eq!(scalers, FILES.len() - 2);
    }

    #[test]
    fn a_worker_has_more_time_to_end_than_its_drain() {
        let deployment = of_kind("Deployment");
        let pod = &deployment["spec"]["template"];
        let container = &pod["spec"]["containers"][0];
        let args: Vec<&str> =
            container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(grace > seconds(&args.join(" "), "--drain="), "{args:?}");
        let port = container["ports"][0]["containerPort"].to_string();
        assert!(args.contains(&format!("--listen=0.0.0.0:{port}").as_str()), "{args:?}");
        assert_eq!(pod["metadata"]["annotations"]["prometheus.io/port"], port.as_str());
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
        let labels = &pod["metadata"]["labels"];
        assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
        assert_eq!(&of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels);

        let (_, unit) =
            files().into_iter().find(|(path, _)| *path == "systemd/tidegate-worker@.service").unwrap();
        assert!(seconds(&unit, "TimeoutStopSec=") > seconds(&unit, "--drain "));
    }
    #[test]
    fn the_image_is_named_by_the_version_of_this_program_and_a_digest() {
        let image = of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]["image"].clone();
        let (name, digest) = image.as_str().unwrap().split_once("@sha256:").unwrap();
        assert_eq!(name, format!("tidegate:{}", env!("CARGO_PKG_VERSION")));
        assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{digest}");
    }

    #[test]
    fn secrets_are_files_and_what_a_pod_writes_is_bounded() {
        let pod = of_kind("Deployment")["spec"]["template"]["spec"].clone();
        let container = &pod["containers"][0];
        assert!(container["env"].is_null() && container["envFrom"].is_null(), "a secret in the environment");
        let volumes = pod["volumes"].as_array().unwrap();
        assert!(volumes.iter().any(|volume| volume["secret"]["secretName"].is_string()));
        for volume in volumes.iter().filter(|volume| !volume["emptyDir"].is_null()) {
            assert!(volume["emptyDir"]["sizeLimit"].is_string(), "{volume}");
        }
        assert!(container["resources"]["limits"]["ephemeral-storage"].is_string());
    }

    #[test]
    fn a_pod_does_not_reach_the_credentials_of_its_node() {
        let policy = of_kind("NetworkPolicy");
        assert_eq!(policy["spec"]["podSelector"], of_kind("PodDisruptionBudget")["spec"]["selector"]);
        let rules = policy["spec"]["egress"].as_array().unwrap();
        for block in rules.iter().flat_map(|rule| rule["to"].as_array().unwrap()) {
            let open = block["ipBlock"]["cidr"] == "0.0.0.0/0";
            let except = block["ipBlock"]["except"].as_array().into_iter().flatten();
            assert!(!open || except.into_iter().any(|range| range == "169.254.0.0/16"), "{block}");
        }
    }

    #[test]
    fn autoscalers_reach_brokers_by_tls() {
        let plain = |text: &&str| text.contains("amqp://") || text.contains("enableTLS: \"false\"");
        let faults: Vec<_> = FILES.iter().filter(|(_, text)| plain(text)).map(|(path, _)| path).collect();
        assert!(faults.is_empty(), "{faults:?}");
        for (broker, setting) in
            [("redis", "enableTLS: \"true\""), ("kafka", "tls: enable"), ("nats", "useHttps: \"true\"")]
        {
            let (_, text) = FILES.iter().find(|(path, _)| path.contains(&format!("keda-{broker}"))).unwrap();
            assert!(text.contains(setting), "{broker}");
        }
    }
}
