# Targets for people; CI runs `make test`. Everything that runs Podman does so in a scratch place (integration-tests/machine/enter).

CARGO ?= cargo
PREFIX ?= /usr/local
MACHINE := integration-tests/machine
TRIPLE = $(shell rustc -vV | sed -n 's/^host: //p')
RELEASE = target/$(TRIPLE)/release
PACKAGE := integration-tests/package

# root installs for the system, anybody else for themselves
ifeq ($(shell id -u),0)
SCOPE := system
BIN := $(PREFIX)/bin
SHARE := $(PREFIX)/share
else
SCOPE := user
BIN := $(HOME)/.local/bin
SHARE := $(HOME)/.local/share
endif

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
	$(MACHINE)/run-tests crun
	TESTS="podman failures" $(MACHINE)/run-tests runc

.PHONY: test-all
test-all: test test-bed ## all tests, the long ones, fuzzing and the test bed included
	integration-tests/images/clis all
	IGNORED=1 TESTS=harnesses $(MACHINE)/run-tests crun
	TESTS=harnesses $(MACHINE)/run-tests runc
	PATH="$$(integration-tests/images/s3):$$(integration-tests/images/tokens):$$(integration-tests/images/postgres):$$PATH" $(CARGO) test -p understudy --test proxy -- --ignored
	integration-tests/images/build clients
	integration-tests/images/postgres image
	integration-tests/images/ssh
	integration-tests/images/s3 image
	TESTS=long $(MACHINE)/run-tests crun
	$(MAKE) test-deb
	integration-tests/fuzz/run 60

.PHONY: test-bed
test-bed: packages ## the tests on Podman 5 and systemd, rootless and rootful (root or sudo)
	integration-tests/images/build
	ENTER=test-bed TESTS="podman failures quadlet" $(MACHINE)/run-tests crun runc
	ENTER="test-bed --root" TESTS="podman failures quadlet" $(MACHINE)/run-tests crun runc

.PHONY: matrix
matrix: packages ## writes docs/matrix.md as the tests find it (root or sudo)
	integration-tests/images/build
	$(MACHINE)/matrix

.PHONY: fuzz
fuzz: packages ## a minute of fuzzing for each parser of bytes that are not trusted
	integration-tests/fuzz/run 60

# What plain `cargo test` does not run is no part of --all-targets either.
.PHONY: lint
lint: ## clippy, with warnings denied, of everything
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace --test podman --test failures --test harnesses --test managed --test quadlet --test long -- -D warnings

.PHONY: check
check: lint ## format, lints, unit tests
	$(CARGO) fmt --check
	$(CARGO) test --workspace --lib --bins
	@if command -v shellcheck >/dev/null; then shellcheck $(MACHINE)/* integration-tests/images/* $(PACKAGE)/* integration-tests/demo integration-tests/bench .ci/run; \
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
install: image ## programs, manual and hook of this user (of the system as root), and the image
	install -D -m 755 -t $(DESTDIR)$(BIN) $(RELEASE)/understudy-hook $(RELEASE)/understudy
	$(RELEASE)/understudy-manual $(DESTDIR)$(SHARE)
	$(DESTDIR)$(BIN)/understudy-hook install --$(SCOPE) --sidecar-image localhost/understudy

.PHONY: uninstall
uninstall: ## what install wrote; secrets and configuration stay
	$(DESTDIR)$(BIN)/understudy-hook uninstall --$(SCOPE)
	rm -f $(DESTDIR)$(BIN)/understudy-hook $(DESTDIR)$(BIN)/understudy
	rm -f $(DESTDIR)$(SHARE)/man/man1/understudy.1 $(DESTDIR)$(SHARE)/man/man1/understudy-*.1 \
		$(DESTDIR)$(SHARE)/bash-completion/completions/understudy.bash \
		$(DESTDIR)$(SHARE)/bash-completion/completions/understudy-hook.bash \
		$(DESTDIR)$(SHARE)/zsh/site-functions/_understudy $(DESTDIR)$(SHARE)/zsh/site-functions/_understudy-hook \
		$(DESTDIR)$(SHARE)/fish/vendor_completions.d/understudy.fish \
		$(DESTDIR)$(SHARE)/fish/vendor_completions.d/understudy-hook.fish

.PHONY: deb
deb: release ## a package for Debian and its family, in target/package
	$(PACKAGE)/stage $(RELEASE)
	@command -v cargo-deb >/dev/null || { echo "deb: installing cargo-deb, some minutes"; CARGO_BUILD_RUSTFLAGS= $(CARGO) install --locked cargo-deb; }
	$(CARGO) deb --package understudy-hook --no-build --no-strip --output target/package/

.PHONY: test-deb
test-deb: deb ## installs that package over a copy of this system, tries it, removes it, looks for what stays (root or sudo)
	$(PACKAGE)/try target/package/*.deb

.PHONY: bench
bench: packages ## what the hook and the sidecar cost, as ratios
	integration-tests/bench
