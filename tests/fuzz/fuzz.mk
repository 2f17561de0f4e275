.PHONY: test-fuzz-calls

test-fuzz-calls: test-deps ## libFuzzer on everything SQL can call, for SECONDS_FUZZ seconds
	tests/fuzz/calls.sh $(SECONDS_FUZZ)
