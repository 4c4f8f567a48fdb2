"""Converts untrusted bytes to text: PDFs, web pages, attached files.

`read_apart` runs the parsers in a child process with limits on time and memory, because they are third-party code that
can be slow and use much memory.
"""
