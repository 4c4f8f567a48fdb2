"""Everything that the server knows about Open WebUI: its HTML, its prompts, its headers and its status events.

`drawing` uses the code of the pipe. The rest of the pipe's copies of this project's code are compared with their
originals by the tests in `tests/openwebui`, because the pipe is one file without imports from this project.
"""
