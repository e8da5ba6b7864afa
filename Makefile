# One target per thing a person wants. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
CARGO ?= cargo
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: test
test: ## everything that must pass: format, lints, docs, all tests, the pages in a browser, some real servers, Python
	tools/with-postgres tools/with-redis tools/with-nats tools/test --cargo "$(CARGO)"

.PHONY: test-real
test-real: ## against servers that others wrote, which are installed if missing, cell by cell; add ARGS="--only qgis"
	$(CARGO) build --locked -p tidegate
	TIDEGATE=$${CARGO_TARGET_DIR:-target}/debug/tidegate tools/real/run $(ARGS)

.PHONY: test-hostile
test-hostile: ## the attacks of SECURITY.md, most of them through the built program; `make test` runs them too
	$(CARGO) test --locked -p tidegate --test hostile
	$(CARGO) test --locked -p tidegate --test suite -- strangers secrets seal:: cache:: modes:: tls:: serve:: audit::
	$(CARGO) test --locked -p tidegate-client --test suite -- http::
	$(CARGO) test --locked -p tidegate-ledger --test suite -- audit::

.PHONY: rules
rules: ## the alert rules, checked and tried by promtool (taken out of a Debian package if missing)
	tools/with-promtool promtool check rules deploy/prometheus/tidegate.rules.yml
	cd deploy/prometheus && ../../tools/with-promtool promtool test rules tidegate.test.yml

# In tenths: 20 is 2.0.
EXPOSURE_MAX = 20
.PHONY: units
units: ## the systemd units: what they expose, by systemd-analyze (installed if missing)
	command -v systemd-analyze >/dev/null || apt-get install -y --no-install-recommends systemd >/dev/null
	set -e; for unit in deploy/systemd/*.service; do \
	  systemd-analyze security --offline=true --no-pager --threshold=$(EXPOSURE_MAX) ./$$unit | tail -1; \
	done

.PHONY: browser
browser: ## the pages that it writes, in headless Chromium (installed if missing) and with axe-core
	tools/browser/run $(ARGS)

.PHONY: fmt
fmt: ## check the format
	$(CARGO) fmt --all --check

.PHONY: lint
lint: ## clippy, warnings denied; one type name, one meaning
	tools/names --strict
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: deny
deny: ## the dependencies: licences, banned crates, sources (deny.toml), and a lock file of the fuzz targets that is current
	tools/deny
	$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null

.PHONY: features
features: ## the client alone, and the program without what is optional: no brokers, PostgreSQL, GeoParquet or object stores
	$(CARGO) check --locked -p tidegate-client
	! $(CARGO) tree --locked -p tidegate-client --features tower -e normal --prefix none | grep -E 'sqlite|postgres|parquet|arrow|object_store|redis|nats'
	$(CARGO) check --locked -p tidegate --no-default-features
	# Its table of waiting threads does not survive a fork (docs/decisions/python.md).
	! $(CARGO) tree --locked --workspace -i tokio -e features --prefix none | grep 'tokio feature "parking_lot"'

.PHONY: docs
docs: ## build the API docs, broken links denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# The backend for vectors would compile a second copy of syn for one macro.
DEMO_FLAGS = RUSTFLAGS="$$RUSTFLAGS --cfg curve25519_dalek_backend=\"serial\""
.PHONY: demo
demo: ## the main job on embedded defaults, by a small program that is built fast: files in tidegate-demo/
	$(DEMO_FLAGS) $(CARGO) run --locked --profile demo -p tidegate --no-default-features -- demo

.PHONY: build
build: ## the release binary: target/release/tidegate
	$(CARGO) build --release --locked -p tidegate

.PHONY: wheel
wheel: target/wheel-venv/done ## the Python wheel, optimised for size: target/wheels/
	target/wheel-venv/bin/maturin build --locked --profile wheel --manifest-path crates/python/Cargo.toml --out target/wheels

target/wheel-venv/done:
	python3 -m venv target/wheel-venv
	target/wheel-venv/bin/pip install --quiet 'maturin>=1.9,<2'
	touch $@

# All libraries and one example: cargo then selects the features with which the tests of the workspace
# are built, and nothing is compiled twice.
.PHONY: build-python
build-python:
	$(CARGO) build --workspace --lib --example retry --locked

.PHONY: test-python
test-python: build-python ## the Python package, installed into virtual environments under target/
	tools/with-postgres tools/with-redis crates/python/tools/test core
	tools/with-redis crates/python/tools/test flow

FUZZ_SECONDS ?= 60
# No sanitizer: our code has no unsafe blocks, and the build would take twice as long.
FUZZ = $(CARGO) fuzz
FUZZ_BUILD = --sanitizer none --codegen-units 16
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZ_SECONDS (60) each; installs cargo-fuzz
	@command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz --locked
	cd fuzz && $(FUZZ) build $(FUZZ_BUILD)
	cd fuzz && for target in $$($(FUZZ) list); do \
	  mkdir -p corpus/$$target seeds/$$target; \
	  $(FUZZ) run $(FUZZ_BUILD) $$target corpus/$$target seeds/$$target -- \
	    -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=10 -print_final_stats=1 || exit 1; \
	done

.PHONY: oracle
oracle: ## geo against GEOS, PROJ and GDAL, which are installed under target/
	crates/geo/oracle/run

.PHONY: oracle-raster
oracle-raster: ## rasters against GDAL (rasterio) and rio-cogeo, which are installed under target/; add ARGS="more.tif" or ARGS="--every 5" for a part of the files
	crates/raster/oracle/run $(ARGS)

.PHONY: crs
crs: ## take the tables of coordinate systems from PROJ again, and verify them
	crates/geo/tools/run

.PHONY: bench
bench: ## every benchmark in memory and in virtual time, printed as tables
	$(CARGO) build --release --locked -p tidegate-benches --bins
	$(CARGO) run --release --locked -p tidegate-benches --bin bench-core
	$(CARGO) run --release --locked -p tidegate-benches --bin bench-limiter
	$(CARGO) run --release --locked -p tidegate-benches --bin bench-store
	$(CARGO) run --release --locked -p tidegate-benches --bin bench-letter
	$(CARGO) run --release --locked -p tidegate-benches --bin bench-audit
	$(CARGO) bench --locked -p tidegate-sim --bench events

.PHONY: bench-telemetry
bench-telemetry: build ## what metrics and traces cost, in processor time; add ARGS="--pairs 5"
	$(CARGO) run --release --locked -p tidegate-benches --bin bench-telemetry -- $(ARGS)

.PHONY: bench-pipeline
bench-pipeline: build ## a million polygons through convert and run, beside GDAL (installed if missing); add ARGS="--runs 1"
	command -v ogr2ogr >/dev/null || apt-get install -y --no-install-recommends gdal-bin >/dev/null
	[ -x target/venv/bin/python ] || python3 -m venv target/venv
	target/venv/bin/python -c 'import pyogrio, geopandas, pyarrow' 2>/dev/null || target/venv/bin/pip install -q pyogrio geopandas pyarrow
	$(CARGO) build --release --locked -p tidegate-benches --bin bench-pipeline
	TIDEGATE_TEST_PRIVATE=1 tools/with-postgres $${CARGO_TARGET_DIR:-target}/release/bench-pipeline $(ARGS)

.PHONY: bench-http
bench-http: build ## Tidegate against a misbehaving provider, over loopback; add ARGS="--runs 1"
	$(CARGO) run --release --locked -p tidegate-benches --bin bench-http -- $(ARGS)

.PHONY: bench-peers
bench-peers: build target/peers-venv/done ## the same beside its peers, which are built and installed under target/
	CARGO_TARGET_DIR=target/peers $(CARGO) build --release --locked --manifest-path benches/peers/Cargo.toml
	$(CARGO) run --release --locked -p tidegate-benches --bin bench-http -- --peers all $(ARGS)

.PHONY: bench-real
bench-real: build target/peers-venv/done ## behind real nginx and HAProxy (installed if missing), beside reqwest-retry, backon and stamina; add ARGS="--only limit_conn"
	command -v nginx >/dev/null || apt-get install -y --no-install-recommends nginx-light >/dev/null
	command -v haproxy >/dev/null || apt-get install -y --no-install-recommends haproxy >/dev/null
	CARGO_TARGET_DIR=target/peers $(CARGO) build --release --locked --manifest-path benches/peers/Cargo.toml
	$(CARGO) run --release --locked -p tidegate-benches --bin bench-real -- --peers all $(ARGS)

.PHONY: bench-flows
bench-flows: wheel target/flows-venv/done ## 500 throttled rows in Prefect and Dagster; add ARGS=--peers for their own retries
	target/flows-venv/bin/pip install --quiet --force-reinstall --no-deps target/wheels/tidegate-*.whl
	target/flows-venv/bin/python benches/python/flows.py $(ARGS)

target/flows-venv/done: crates/python/tests/flow/requirements.txt
	python3 -m venv target/flows-venv
	target/flows-venv/bin/pip install --quiet -r crates/python/tests/flow/requirements.txt
	touch $@

.PHONY: bench-python
bench-python: wheel ## processor time per call of the Python package, beside requests, httpx, aiohttp, tenacity, stamina and geopy; add ARGS="--only sync"
	benches/python/run $(ARGS)

.PHONY: bench-fleet
bench-fleet: build ## tasks through queues: speed, kills, restarts, one quota, a million tasks, beside Celery and BullMQ; add ARGS="kills --only redis"
	TIDEGATE=$${CARGO_TARGET_DIR:-target}/release/tidegate benches/fleet/run $(ARGS)

.PHONY: bench-raster
bench-raster: build ## warps, a clip and a rasterization beside GDAL (installed if missing) and rasterio's; add ARGS="--side 3000 --runs 1"
	command -v gdalwarp >/dev/null || apt-get install -y --no-install-recommends gdal-bin >/dev/null
	[ -x target/raster-venv/bin/python ] || python3 -m venv target/raster-venv
	target/raster-venv/bin/python -c 'import rasterio, numpy' 2>/dev/null || target/raster-venv/bin/pip install -q rasterio numpy
	TIDEGATE=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/tidegate benches/raster/run $(ARGS)

target/peers-venv/done: benches/peers/requirements.txt
	python3 -m venv target/peers-venv
	target/peers-venv/bin/pip install --quiet -r benches/peers/requirements.txt
	touch $@
