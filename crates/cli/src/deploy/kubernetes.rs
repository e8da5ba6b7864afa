//! Manifests for Kubernetes, written by hand: workers with their probes and a disruption budget, and
//! autoscalers, one for each broker.

/// The files.
pub(super) const FILES: &[(&str, &str)] = &[
    ("kubernetes/worker.yaml", include_str!("../../../../deploy/kubernetes/worker.yaml")),
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
        assert_eq!(scalers, FILES.len() - 1);
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
}
