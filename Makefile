# make build | test | demo | clean        (README.md explains each)
BUILD ?= build
PYTHON ?= python3
STEPS ?= 3

.PHONY: build test demo setup clean
setup:
	@tools/setup
build: setup
	@tools/build $(BUILD)
test: build
	@tools/setup test
	@tools/test $(BUILD)
demo: build
	@STEPS=$(STEPS) tools/demo $(BUILD)
clean:
	rm -rf $(BUILD)
