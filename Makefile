# The whole developer interface. Needs Python 3.11+; Go too for the control-plane suite and the chart.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Every test worker, and every process that a test starts, loads the same bytecode.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
# One worker per processor. A whole run has a control plane in each, which takes memory, and waits
# for it half of the time: so two workers per processor, and at most four.
QUICK := -n auto --dist worksteal --hypothesis-profile quick -m "not controlplane and not oracle and not long and not prometheus and not helm"
WHOLE := -n $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 2 ? 2 : 4))) --dist worksteal

.PHONY: help demo demo-cluster quick test retest check format bench goodput soak controlplane versions manifests release sbom audit base lock site clean
.DEFAULT_GOAL := help

help:
	@echo "make demo          Fettle on an embedded fleet with faults: no cluster; the network only to install"
	@echo "make demo-cluster  the same story on a real control plane (needs Go)"
	@echo "make quick         tests without the control plane, Prometheus, the oracle and long properties: three minutes on two cores"
	@echo "make test          all tests; those that need Go or Prometheus say so if skipped"
	@echo "make retest        tests that failed last time, one after the other"
	@echo "make check         format, lint, types, layers, the list of modules, licences of what is shipped"
	@echo "make release       VERSION=0.2.0: that version everywhere; wheel, chart and notes into build/release (needs Go)"
	@echo "make sbom          what is shipped, as CycloneDX: build/sbom.json"
	@echo "make audit         known vulnerabilities of what the lock names: asks the package index"
	@echo "make bench         benchmarks, a table and build/bench.json (needs Go)"
	@echo "make goodput       what a fleet gets done by who minds its health: simulated, then on a real kube-scheduler (Go)"
	@echo "make soak          all that can fail or attack, for hours, beside work: ARGS=\"--hours 8\" (needs Go)"
	@echo "make controlplane  build the real control plane and Helm for tests, once, into a cache folder"
	@echo "make site          the site of docs/, with every link checked: build/site"
	@echo "make manifests     the files of deploy/ that the chart or the command line makes (needs Go)"

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fettle needs Python 3.11 or later, and $(PYTHON) is %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)
	@$(BIN)/fettle demo $(ARGS)

demo-cluster: $(READY)
	@$(BIN)/python -m tests.controlplane.demo $(ARGS)

quick: $(READY)
	@$(BIN)/python -m pytest $(QUICK) $(ARGS)

test: $(READY)
	@$(BIN)/python -m pytest $(WHOLE) $(ARGS)

retest: $(READY)
	@$(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(ARGS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.module_index
	$(BIN)/python -m fettle.cli.reference --check docs/*.md
	$(BIN)/python -m tests.supply.licences

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m tests.module_index --write
	$(BIN)/python -m fettle.cli.reference docs/*.md

bench: $(READY)
	@$(BIN)/python -m tests.bench $(ARGS)

# One seed each: 1 to 3 minutes simulated, then 2 minutes a contender. ARGS go to both.
goodput: $(READY)
	@$(BIN)/python -m tests.goodput --setting saturated --nodes 40 --seeds 1 $(ARGS)
	@$(BIN)/python -m tests.goodput --setting saturated --control-plane --seeds 1 \
		--contenders default cordon enforce $(ARGS)

soak: $(READY)
	@$(BIN)/python -m tests.soak $(ARGS)

controlplane: $(READY)
	@$(BIN)/python -m tests.controlplane.building
	@$(BIN)/python -m tests.deploy.charting

# What .ci/run runs on the newest version alone. Ten minutes each, the first build aside.
VERSIONS = v1.35.4 v1.36.4
CORE = steering second_scheduler
versions: $(READY)
	@for version in $(VERSIONS); do \
		echo "Kubernetes $$version" && FETTLE_REQUIRE_CONTROLPLANE=1 FETTLE_KUBERNETES=$$version \
			$(BIN)/python -m pytest -n0 $(CORE:%=tests/controlplane/test_%.py) || exit 1; \
	done

manifests: $(READY)
	@$(BIN)/python -m tests.deploy.values_schema
	@$(BIN)/python -m tests.deploy.rendering
	@$(BIN)/fettle scheduler-config --mode observe > deploy/scheduler/kube-scheduler-config.yaml
	@$(BIN)/fettle scheduler-config --mode enforce > deploy/scheduler/kube-scheduler-config-enforce.yaml

release: $(READY)
	@$(BIN)/python -m tests.supply.release $(VERSION)

sbom: $(READY)
	@mkdir -p build
	@$(BIN)/python -m tests.supply.sbom > build/sbom.json
	@echo "build/sbom.json"

# In an environment of its own, as the newest one knows most. Strict: what the index does not know
# is else passed over as if it were sound.
audit:
	@test -x build/audit/bin/python || $(PYTHON) -m venv build/audit
	@build/audit/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip-audit>=2.9,<3'
	@build/audit/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock $(ARGS)

# The image of BASE in Dockerfile that its tag means today. Needs docker and the network.
base:
	@tag=$$(sed -n 's/^ARG BASE=\([^@]*\).*/\1/p' Dockerfile) && \
		digest=$$(docker buildx imagetools inspect "$$tag" --format '{{.Manifest.Digest}}') && \
		sed -i "s|^ARG BASE=.*|ARG BASE=$$tag@$$digest|" Dockerfile && grep '^ARG BASE=' Dockerfile

# In an environment of its own: nothing else needs the generator.
site:
	@test -x build/site-tools/bin/python || $(PYTHON) -m venv build/site-tools
	@build/site-tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@build/site-tools/bin/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

lock: $(READY)
	@$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal \
		--python-version 3.11 --extra dev pyproject.toml -o requirements.lock
	echo 'mkdocs>=1.6,<2' | $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal \
		--python-version 3.11 - -o requirements-docs.lock

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
