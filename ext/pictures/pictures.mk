# The README's pictures, drawn from text: graphviz and plantuml.
.PHONY: pictures
pictures: ## draws the README's pictures anew
	@tests/deps.sh graphviz plantuml
	dot -Tsvg -o ext/pictures/states.svg ext/pictures/states.dot
	plantuml -tsvg -nometadata ext/pictures/retry.puml
