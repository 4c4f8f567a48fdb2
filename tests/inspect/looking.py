"""A page of the inspector in a real browser, and what it must not do: complain, break the rules of WCAG."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page

PICTURES = Path(__file__).resolve().parents[2] / "artifacts" / "inspect"
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
DESKTOP = (1280, 900)
PHONE = (390, 844)


def in_a_browser(test: Any) -> Any:
    """Mark a test that needs a browser, which is opened once for all of them."""
    return pytest.mark.needs("browser")(pytest.mark.asyncio(loop_scope="session")(test))


@dataclass
class Looking:
    """A page, and what its console complained of."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    async def picture(self, name: str) -> None:
        """Keep what the page looks like."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

    async def faults(self) -> list[str]:
        """What axe-core finds against WCAG 2.2 AA."""
        await self.page.evaluate(AXE)
        options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
        found: dict[str, Any] = await self.page.evaluate("options => axe.run(document, options)", options)
        return [f"{one['id']}: {node['html']}" for one in found["violations"] for node in one["nodes"]]

    async def overflows(self) -> bool:
        """Whether the page is wider than its window: on a phone one would have to scroll to the side."""
        wide: bool = await self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        return wide

    async def check(self, name: str) -> None:
        """Keep a picture, and hold that the page breaks no rule."""
        await self.picture(name)
        faults = await self.faults()
        assert not faults, faults
        assert not await self.overflows(), "one would have to scroll to the side"
        assert not self.complaints, self.complaints


@asynccontextmanager
async def look(
    browser: Browser,
    size: tuple[int, int] = DESKTOP,
    scheme: Literal["light", "dark"] = "light",
    *,
    scripts: bool = True,
) -> AsyncIterator[Looking]:
    """A page of that size and colours."""
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, java_script_enabled=scripts
    )
    page = await context.new_page()
    looking = Looking(page)

    def complain(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            looking.complaints.append(message.text)

    page.on("console", complain)
    page.on("pageerror", lambda error: looking.complaints.append(str(error)))
    page.on("dialog", lambda dialog: looking.complaints.append(f"dialog: {dialog.message}"))
    yield looking
    await context.close()
