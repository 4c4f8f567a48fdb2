"""Server-side request forgery: the addresses that a model may fetch. No forbidden address is contacted."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from callboard.errors import AddressRefused, ToolError
from callboard.skills.web.client import download, guarded_client
from callboard.skills.web.guard import AllowList, Guard, read_url
from tests.skills.web.names import Names
from tests.skills.web.sites import Site, page, redirect

NAMES = {
    "inside.example": [["10.0.0.5"]],
    "mixed.example": [["93.184.216.34", "127.0.0.1"]],
    "mapped.example": [["::ffff:127.0.0.1"]],
    "six.example": [["fe80::1%2"]],
    "metadata.google.internal": [["169.254.169.254"]],
    "localhost": [["127.0.0.1", "::1"]],
    "127.0.0.1.nip.example": [["127.0.0.1"]],
    "xn--bcher-kva.example": [["192.168.1.1"]],
    "public.example": [["127.0.0.1"]],
    "web.example": [["93.184.216.34"]],
}

# {port} is where a real server listens on 127.0.0.1.
REFUSED = r"""
http://127.0.0.1:{port}/
http://127.0.0.1:{port}/latest/meta-data/
https://127.0.0.1:{port}/
http://127.0.0.1.:{port}/
http://127.1:{port}/
http://127.0.1:{port}/
http://0:{port}/
http://2130706433:{port}/
http://017700000001:{port}/
http://0x7f000001:{port}/
http://0x7f.0x0.0x0.0x1:{port}/
http://0x7f.1:{port}/
http://0177.0.0.1:{port}/
http://0177.0.0.01:{port}/
http://00000177.0.0.1:{port}/
http://127.0.0.0x1:{port}/
http://127.0.0.1%00.example.com:{port}/
http://%31%32%37.0.0.1:{port}/
http://①②⑦.⓪.⓪.①:{port}/
http://127。0。0。1:{port}/
http://１２７.0.0.1:{port}/
http://١٢٧.0.0.1:{port}/
http://localhost:{port}/
http://LOCALHOST:{port}/
http://localhost.:{port}/
http://ⓛocalhost:{port}/
http://[::1]:{port}/
http://[0:0:0:0:0:0:0:1]:{port}/
http://[::]:{port}/
http://[::ffff:127.0.0.1]:{port}/
http://[::ffff:7f00:1]:{port}/
http://[::127.0.0.1]:{port}/
http://[64:ff9b::127.0.0.1]:{port}/
http://[2002:7f00:1::]:{port}/
http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]:{port}/
http://[fe80::1%25lo]:{port}/
http://[::1%25lo]:{port}/
http://[fd00:ec2::254]/latest/meta-data/
http://169.254.169.254/latest/meta-data/iam/security-credentials/
http://169.254.170.2/v2/credentials
http://100.100.100.200/latest/meta-data/
http://168.63.129.16/metadata
http://192.0.0.192/opc/v1/instance/
http://metadata.google.internal/computeMetadata/v1/
http://inside.example/
http://mixed.example/
http://mapped.example/
http://six.example/
http://bücher.example/
http://127.0.0.1.nip.example:{port}/
http://web.example@127.0.0.1:{port}/
http://user:password@web.example/
http://web.example\@127.0.0.1:{port}/
http://127.0.0.1:{port}\@web.example/
http://web.example%2f@127.0.0.1:{port}/
http://web.example:22/
http://web.example:6379/
http://web.example:0/
http://web.example:65616/
http://[::1
http://[not-an-address/
http://web .example/
//127.0.0.1:{port}/
file:///etc/passwd
file://127.0.0.1/etc/passwd
gopher://127.0.0.1:{port}/_GET%20/
ftp://127.0.0.1:{port}/
dict://127.0.0.1:{port}/
ws://127.0.0.1:{port}/
unix:///var/run/docker.sock
data:text/html,hello
javascript:alert(1)
about:blank
""".strip().splitlines()

# As redirects these are paths of the site itself.
REFUSED_AS_GIVEN = ["http:///127.0.0.1:{port}/", "http:127.0.0.1:{port}", "127.0.0.1:{port}", "/etc/passwd", ""]


@pytest.fixture
async def victim() -> AsyncIterator[Site]:
    async with Site(page("<p>a secret</p>")) as site:
        yield site


async def fetch(url: str, *allowed: str, names: Names | None = None) -> bytes:
    guard = Guard(AllowList.read(allowed), names or Names(NAMES))
    async with guarded_client(guard) as client:
        return (await download(client, url)).body


@pytest.mark.parametrize("url", REFUSED + REFUSED_AS_GIVEN)
async def test_an_address_that_is_not_the_public_web_is_refused_and_not_contacted(url: str, victim: Site) -> None:
    with pytest.raises(AddressRefused):
        await fetch(url.replace("{port}", str(victim.port)))
    assert victim.connections == 0


@pytest.mark.parametrize("url", REFUSED)
async def test_redirect_to_private_address_is_refused(url: str, victim: Site) -> None:
    async with Site(redirect(url.replace("{port}", str(victim.port)))) as site:
        with pytest.raises(AddressRefused):
            await fetch(f"http://public.example:{site.port}/", "public.example")
        assert len(site.heard) == 1
    assert victim.connections == 0


async def test_every_redirect_in_chain_is_checked(victim: Site) -> None:
    hops = {"/": "/two", "/two": "https:/three", "/three": f"http://127.0.0.1:{victim.port}/"}
    async with Site(lambda heard: redirect(hops[heard.path], 308)) as site:
        hops["/two"] = f"http://public.example:{site.port}/three"
        with pytest.raises(AddressRefused, match="this machine"):
            await fetch(f"http://public.example:{site.port}/", "public.example")
        assert [heard.path for heard in site.heard] == ["/", "/two", "/three"]
    assert victim.connections == 0


async def test_refusal_has_advice_without_address() -> None:
    with pytest.raises(AddressRefused) as refused:
        await fetch("http://inside.example/")
    assert refused.value.code == "address_refused"
    assert str(refused.value) == (
        "inside.example belongs to a private network, which no tool may fetch: use a public address. "
        "The admin of this server can allow private hosts in CALLBOARD_ALLOWED_HOSTS."
    )


async def test_unknown_host_is_error_not_refusal() -> None:
    with pytest.raises(ToolError, match=r"no host named nowhere\.example") as failed:
        await fetch("http://nowhere.example/")
    assert not isinstance(failed.value, AddressRefused)


@pytest.mark.parametrize("allowed", ["public.example", "127.0.0.1", "127.0.0.0/8"])
async def test_an_allowed_host_is_fetched_on_any_port(allowed: str, victim: Site) -> None:
    assert await fetch(f"http://public.example:{victim.port}/", allowed) == b"<p>a secret</p>"


async def test_public_addresses_of_all_forms_pass() -> None:
    names = Names({"web.example": [["93.184.216.34", "2606:4700::1111"]], "xn--bcher-kva.example": [["8.8.8.8"]]})
    guard = Guard(resolve=names)
    urls = (
        "http://web.example",
        "https://WEB.example.:8443/x?y#z",
        "http://bücher.example/",
        "https://[2606:4700::1]/",
    )
    found = [await guard.addresses(read_url(url)) for url in urls]
    pair = ("93.184.216.34", "2606:4700::1111")
    assert found == [pair, pair, ("8.8.8.8",), ("2606:4700::1",)]


async def test_dns_rebinding_after_check_has_no_effect() -> None:
    names = Names({"rebinding.example": [["127.0.0.1"], ["127.0.0.2"]]})
    async with Site(page("outside")) as outside, Site(page("inside"), host="127.0.0.2", port=outside.port) as inside:
        assert await fetch(f"http://rebinding.example:{outside.port}/", "127.0.0.1", names=names) == b"outside"
        assert names.asked == ["rebinding.example"]
        with pytest.raises(AddressRefused):
            await fetch(f"http://rebinding.example:{outside.port}/", "127.0.0.1", names=names)
        assert (outside.connections, inside.connections) == (1, 0)
        assert outside.heard[0].headers["host"] == f"rebinding.example:{outside.port}"


async def test_dns_rebinding_between_redirects_is_refused() -> None:
    names = Names({"rebinding.example": [["127.0.0.1"], ["127.0.0.2"]]})
    async with Site(redirect("/again")) as outside, Site(page("inside"), host="127.0.0.2", port=outside.port) as inside:
        with pytest.raises(AddressRefused):
            await fetch(f"http://rebinding.example:{outside.port}/", "127.0.0.1", names=names)
        assert (outside.connections, inside.connections) == (1, 0)


async def test_next_address_is_tried_if_connection_fails() -> None:
    names = Names({"two.example": [["127.0.0.2", "127.0.0.1"]]})
    async with Site(page("here")) as site:
        assert await fetch(f"http://two.example:{site.port}/", "two.example", names=names) == b"here"


async def test_parallel_fetches_do_not_mix_names_of_one_address() -> None:
    names = Names({f"{letter}.example": [["127.0.0.1"]] for letter in "abcdef"})
    guard = Guard(AllowList.read(("127.0.0.1",)), names)
    async with Site(lambda heard: page(heard.headers["host"][0])) as site, guarded_client(guard) as client:
        pages = await asyncio.gather(
            *(download(client, f"http://{letter}.example:{site.port}/") for letter in "abcdef")
        )
    assert b"".join(one.body for one in pages) == b"abcdef"
