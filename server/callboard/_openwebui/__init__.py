"""Everything that the server knows about Open WebUI: its HTML, its prompts, its headers and its status events.

The pipe is one file without imports from this project, so it has its own copy of some of this code. The tests in
`tests/openwebui` compare both copies.
"""
