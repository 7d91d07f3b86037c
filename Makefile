# Targets for people; CI runs `make test`. Everything that runs Podman does so in a scratch place (integration-tests/machine/enter).

CARGO ?= cargo
PREFIX ?= /usr/local
MACHINE := integration-tests/machine
TRIPLE = $(shell rustc -vV | sed -n 's/^host: //p')
RELEASE = target/$(TRIPLE)/release

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: demo
demo: ## a real agent in a sealed container, end to end, in a scratch place
	integration-tests/demo

.PHONY: test
test: packages ## all tests but the long ones, on crun and runc
	$(CARGO) test --workspace
	integration-tests/images/build
	integration-tests/images/clis
	$(MACHINE)/run-tests crun runc

.PHONY: test-all
test-all: test test-bed ## all tests, the long ones, fuzzing and the test bed included
	integration-tests/images/clis all
	IGNORED=1 TESTS=harnesses $(MACHINE)/run-tests crun
	PATH="$$(integration-tests/images/s3):$$(integration-tests/images/tokens):$$PATH" $(CARGO) test -p understudy --test proxy -- --ignored
	integration-tests/images/build clients
	TESTS=long $(MACHINE)/run-tests crun
	integration-tests/fuzz/run 60

.PHONY: test-bed
test-bed: packages ## the tests on Podman 5 and systemd, rootless and rootful (root or sudo)
	integration-tests/images/build
	ENTER=test-bed TESTS="podman failures quadlet" $(MACHINE)/run-tests crun runc
	ENTER="test-bed --root" TESTS="podman failures quadlet" $(MACHINE)/run-tests crun runc

.PHONY: fuzz
fuzz: packages ## a minute of fuzzing for each parser of bytes that are not trusted
	integration-tests/fuzz/run 60

.PHONY: check
check: ## format, lints, unit tests
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace --lib --bins
	@if command -v shellcheck >/dev/null; then shellcheck $(MACHINE)/* integration-tests/images/* integration-tests/demo integration-tests/bench .ci/run; \
	else echo "check: shellcheck is not installed; shell scripts were not looked at"; fi

.PHONY: deny
deny: ## licences, bans and sources of all dependencies
	@command -v cargo-deny >/dev/null || { echo "deny: installing cargo-deny, some minutes"; CARGO_BUILD_RUSTFLAGS= $(CARGO) install --locked cargo-deny; }
	$(CARGO) deny check licenses bans sources

.PHONY: packages
packages:
	$(MACHINE)/install-packages

.PHONY: release
release:
	$(CARGO) build --release --workspace --bins

.PHONY: image
image: release ## the sidecar's image, localhost/understudy
	integration-tests/images/sidecar-context $(RELEASE)/understudy target/image
	podman build --quiet --format docker --tag localhost/understudy target/image

.PHONY: install
install: image ## program and hook of this user (of the system as root), and the image
	@if [ "$$(id -u)" = 0 ]; then \
		install -D -m 755 $(RELEASE)/understudy-hook $(DESTDIR)$(PREFIX)/bin/understudy-hook && \
		$(DESTDIR)$(PREFIX)/bin/understudy-hook install --system --sidecar-image localhost/understudy; \
	else \
		install -D -m 755 $(RELEASE)/understudy-hook "$$HOME/.local/bin/understudy-hook" && \
		"$$HOME/.local/bin/understudy-hook" install --user --sidecar-image localhost/understudy; \
	fi

.PHONY: uninstall
uninstall: ## what install wrote; secrets and configuration stay
	@if [ "$$(id -u)" = 0 ]; then \
		$(DESTDIR)$(PREFIX)/bin/understudy-hook uninstall --system && rm -f $(DESTDIR)$(PREFIX)/bin/understudy-hook; \
	else \
		"$$HOME/.local/bin/understudy-hook" uninstall --user && rm -f "$$HOME/.local/bin/understudy-hook"; \
	fi

.PHONY: bench
bench: packages ## what the hook and the sidecar cost, as ratios
	integration-tests/bench
