"""A skill is made once; what it keeps open belongs to the application that opened it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from callboard import Agent, Skill, tool
from callboard._agents import Registry
from callboard._tools import Services
from callboard.skills import SkillState
from callboard_protocol import ToolCallComplete
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.serving import request, serving


class Counter(Skill):
    """Counts from 1 anew in each application."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        super().__init__("counter", "Counts.", lifespan=self._open)

    @asynccontextmanager
    async def _open(self, _services: Services) -> AsyncIterator[SkillState]:
        counted = 0

        @tool
        def count() -> int:
            """Count on."""
            nonlocal counted
            counted += 1
            return counted

        yield SkillState(tools=(count,), prompt_fragment="You can count.")
        self.closed.append(counted)


async def test_two_applications_with_the_same_skill_share_nothing_of_it(tmp_path: Path) -> None:
    counter = Counter()
    agent = Agent("scripted", skills=[counter])
    asked = chunks(call("count", "{}", call_id="c"), finish("tool_calls"))
    answers = [asked, chunks(text("There."), finish("stop"))] * 3
    counted: list[list[str]] = []
    async with OpenAIServer(answers) as model:
        settings = {"model_base_url": model.base_url, "model": "m"}
        async with (
            serving(tmp_path / "a", agent, **settings) as first,
            serving(tmp_path / "b", agent, **settings) as second,
        ):
            for service in (first, first, second):
                events = await service.events(request())
                counted.append([event.result for event in events if isinstance(event, ToolCallComplete)])
    assert counted == [["1"], ["2"], ["1"]]
    assert sorted(counter.closed) == [1, 2]
    assert "You can count." in str(model.requests[0]["messages"][0])
    assert agent.tools == ()


async def test_two_agents_of_one_application_share_what_is_open(services: Services) -> None:
    counter = Counter()
    registry = Registry([Agent("one", skills=[counter]), Agent("two", skills=[counter])])
    async with registry.open(services) as opened:
        [one, two] = opened
        assert isinstance(one, Agent)
        assert isinstance(two, Agent)
        assert one.skills == two.skills
        [counting] = one.tools
        assert (counting(), counting()) == (1, 2)
    assert counter.closed == [2]


async def test_a_lifespan_that_yields_nothing_leaves_the_skill_as_it_was_made(services: Services) -> None:
    @asynccontextmanager
    async def lifespan(_services: Services) -> AsyncIterator[None]:
        yield

    @tool
    def wave() -> None:
        """Wave."""

    async with Skill("waver", "Waves.", "You wave.", (wave,), max_tool_calls=2, lifespan=lifespan).open(services) as on:
        assert (on.current_tools(), on.current_prompt(), on.max_tool_calls) == ((wave,), "You wave.", 2)


async def test_the_keys_of_a_skill_are_kept_out_of_what_is_written(services: Services) -> None:
    skill = Skill("keyed", "Has a key.", secrets=("a-long-secret-key",))
    assert "a-long-secret-key" not in repr(skill)
    async with skill.open(services):
        assert "a-long-secret-key" not in services.redaction("the key is a-long-secret-key")


async def test_a_skill_can_be_had_with_another_limit() -> None:
    counter = Counter()
    limited = counter.copy(max_tool_calls=1)
    assert (limited.name, limited.max_tool_calls, limited.lifespan) == ("counter", 1, counter.lifespan)
