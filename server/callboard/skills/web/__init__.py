"""The web skill: searches the web and reads pages.

Every tool that fetches a URL which a model wrote must use `guarded_client` of `client.py`.
"""
