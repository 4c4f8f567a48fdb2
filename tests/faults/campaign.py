"""A campaign: people talk to servers that meet faults at random, and every answer is looked at when it has ended."""

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from callboard.storage.sql.run_record import RETRY_SECONDS
from callboard_protocol import (
    Done,
    Error,
    Event,
    Message,
    Rewind,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
)
from tests.fakes.openai_server import OpenAIServer
from tests.faults.balancer import Balancer
from tests.faults.engines import ENGINES, Engine
from tests.faults.fleet import Server, running
from tests.faults.listener import STEPS, Listener, LostAnswer
from tests.faults.plans import AGENTS, Plan, PlanModel
from tests.runs.promises import check, read

LEASE_SECONDS = 1.5
DRAIN_SECONDS = 1.0
MAX_LOSSES = 3
"""A run that was with so many servers is given up when the last is gone: that one is spared meanwhile."""
TALKERS = 5
KINDS = ("kill", "kill at a step", "restart", "stop and continue", "clock")
"""The faults of servers; those of stores are their engines' own."""
SECONDS_BETWEEN = (0.1, 1.0)
STEP_SECONDS = 10
"""How long a kill waits for its step."""
ALONE_SHARE = 0.7
"""After this part of the faults the next one waits until all is well again."""
HOPPERS_SHARE = 0.4
"""Of this part of the answers there is another listener, who is at another server every few events."""
TURNS = 2
END_SECONDS = 240
"""The longest that an answer may take, with all its faults and waits; on a busy machine a server starts in 30 s."""
KEPT_SECONDS = 5
"""How long the store may take to have an end that was shown already."""
CHAT_SECONDS = 10 * RETRY_SECONDS
"""How long a chat may take to have the end of a turn that the database did not take at once."""


@dataclass
class Answer:
    """One answer: who listens to it, and what befell it."""

    question: str
    listener: Listener
    faults: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_given_up: bool = False

    @property
    def run_id(self) -> str:
        return str(self.listener.body["run_id"])


@dataclass
class Report:
    """What came of a campaign."""

    engine: str
    seed: int
    seconds: float
    told_in_parts: int
    faults: Sequence[str]
    answers: Sequence[Answer]
    calls: Counter[str]
    problems: Sequence[str]

    def __str__(self) -> str:
        lines = [
            f"{self.engine}, seed {self.seed}: {len(self.faults)} faults in {self.seconds:.0f} s, "
            f"{len(self.answers)} answers, {sum(bool(one.faults) for one in self.answers)} of them hit",
            "  " + ", ".join(f"{kind} {count}" for kind, count in sorted(Counter(self.faults).items())),
            "  calls: " + ", ".join(f"{count} {kind}" for kind, count in sorted(self.calls.items())),
        ]
        lines += [
            f"  {kind}: {count} answers" + "".join(f", {fault} {hit[fault]}" for fault in sorted(hit))
            for kind, count, hit in self._table()
        ]
        if self.told_in_parts:
            lines.append(f"  times that the model was told of a round as of several: {self.told_in_parts}")
        if given_up := sum(one.is_given_up for one in self.answers):
            lines.append(f"  given up after {MAX_LOSSES} servers, as promised: {given_up}")
        lines += [f"  PROBLEM {one}" for one in self.problems] or ["  no answer lost, no effect doubled, no gap"]
        return "\n".join(lines)

    def _table(self) -> Iterator[tuple[str, int, Counter[str]]]:
        """The faults of answers, by the kind of their agent and the ways in which its questions are answered."""
        rows: dict[str, list[Answer]] = {}
        for one in self.answers:
            agent = one.listener.body["agent"]
            for way in {call.way for call in Plan.of(one.question).calls.values() if call.way} or {"no question"}:
                rows.setdefault(f"{agent}, {way}", []).append(one)
        for name, answers in sorted(rows.items()):
            yield name, len(answers), Counter(fault for one in answers for fault in one.faults)


@asynccontextmanager
async def staging(engine_name: str, chance: random.Random, folder: Path) -> AsyncIterator["Stage"]:
    """Have servers that share a store, a balancer before them and a model behind them, until the end."""
    async with AsyncExitStack() as closing:
        engine = await closing.enter_async_context(ENGINES[engine_name](folder))
        balancer = await closing.enter_async_context(Balancer(random.Random(chance.random())).listening())
        script = PlanModel()
        model = await closing.enter_async_context(OpenAIServer(script))
        settings = {
            "MODEL_BASE_URL": model.base_url,
            "MODEL": "m",
            "TEST_RAN": str(folder / "ran"),
            "LEASE_SECONDS": str(LEASE_SECONDS),
            "DRAIN_SECONDS": str(DRAIN_SECONDS),
            "CONFIRM_TOOLS": "ship",
        }
        servers = await closing.enter_async_context(running(engine, balancer, folder, settings))
        yield Stage(engine, balancer, servers, script, folder / "ran")


@dataclass(frozen=True)
class Stage:
    """What a campaign plays on; `ran` is the file in which tools write down that they ran."""

    engine: Engine
    balancer: Balancer
    servers: Sequence[Server]
    model: PlanModel
    ran: Path


async def run_campaign(engine_name: str, faults: int, seed: int, folder: Path, only: Sequence[str] = ()) -> Report:
    """Let so many faults happen on an engine; `only` of some kinds, where any are named."""
    chance = random.Random(seed)
    async with staging(engine_name, chance, folder) as stage:
        return await Campaign(stage, seed, chance).run(engine_name, faults, only)


@dataclass
class Campaign:
    """Talkers, and what befalls their servers."""

    stage: Stage
    seed: int
    chance: random.Random
    answers: list[Answer] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    _live: dict[str, Answer] = field(default_factory=dict)
    _befallen: list[Server] = field(default_factory=list)
    _owners: dict[str, int] = field(default_factory=dict)
    _awaited: dict["asyncio.Future[None]", tuple[str, Server]] = field(default_factory=dict)
    _is_over: bool = False

    async def run(self, engine_name: str, faults: int, only: Sequence[str]) -> Report:
        """Let faults happen while people talk; return what came of it when the last answer has ended."""
        began = time.monotonic()
        talking = [asyncio.create_task(self._talk(number)) for number in range(TALKERS)]
        kinds = [kind for kind in (*KINDS, *self.stage.engine.disturbances) if not only or kind in only]
        dealt: list[str] = []
        happening: set[asyncio.Task[None]] = set()
        for _ in range(faults):
            await asyncio.sleep(self.chance.uniform(*SECONDS_BETWEEN))
            server = await self._choose_server()
            # Each kind once, in an order by chance, before any comes again.
            dealt = dealt or self.chance.sample(kinds, len(kinds))
            kind = dealt.pop()
            for one in self.stage.servers:
                self._owners.update(one.owned)
            self._befallen.append(server)
            task = asyncio.create_task(self._let_happen(kind, server))
            happening.add(task)
            at_once = 1 if self.chance.random() < ALONE_SHARE else self.stage.engine.faults_at_once
            while len(happening) >= at_once:
                ended, happening = await asyncio.wait(happening, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    task.result()
        await asyncio.gather(*happening)
        self._is_over = True
        await asyncio.gather(*talking)
        problems = [*self.stage.model.wrong]
        problems += [f"{one.question} ({one.run_id}): {problem}" for one in self.answers for problem in one.problems]
        problems += self._doubled()
        return Report(
            engine_name,
            self.seed,
            time.monotonic() - began,
            self.stage.model.in_parts,
            self.faults,
            self.answers,
            self.calls,
            problems,
        )

    # --- Talking ----------------------------------------------------------------------------------------------------

    async def _talk(self, number: int) -> None:
        """Talk in one chat after another until the faults are over."""
        chat = 0
        while not self._is_over:
            chat += 1
            said: list[dict[str, str]] = []
            for turn in range(TURNS):
                agent = self.chance.choice(AGENTS)
                question = f"{agent}-{self.seed}-{number}-{chat}-{turn}"
                said.append({"role": "user", "content": question})
                answer = await self._ask(question, f"chat-{number}-{chat}", f"user{number}", said)
                said.append({"role": "assistant", "content": text_of(answer.listener.events)})

    async def _ask(self, question: str, chat_id: str, user: str, said: Sequence[dict[str, str]]) -> Answer:
        plan = Plan.of(question)
        body = {
            "agent": question.partition("-")[0],
            "run_id": f"run-{question}",
            "chat_id": chat_id,
            "message_id": f"message-{question}",
            "user": {"id": user},
            "messages": list(said),
            "approvals_wait": plan.waits,
        }
        listener = Listener(self.stage.balancer.url, body, plan.calls, self._reach)
        answer = self._live[f"run-{question}"] = Answer(question, listener)
        self.answers.append(answer)
        hopping = Listener(self.stage.balancer.url, body)
        others = (
            [asyncio.create_task(hopping.hop_after(listener, random.Random(question)))]
            if self.chance.random() < 0.4
            else []
        )
        try:
            async with asyncio.timeout(END_SECONDS):
                await listener.start()
                await asyncio.gather(*others)
        except TimeoutError:
            answer.problems.append(f"no end within {END_SECONDS} s, after event {len(listener.frames)}")
        except LostAnswer as error:
            answer.problems.append(f"lost: {error}")
        else:
            await self._look_at(answer, hopping if others else None)
        finally:
            for task in others:
                task.cancel()
            del self._live[answer.run_id]
        return answer

    # --- Looking ----------------------------------------------------------------------------------------------------

    async def _look_at(self, answer: Answer, hopping: Listener | None) -> None:
        """Find what of an ended answer is not as it should be."""
        problems = answer.problems
        listener = answer.listener
        problems += listener.problems
        stored = await self._stored_frames(answer)
        seen = b"".join(listener.frames)
        if seen != stored:
            problems.append(f"the listener saw {_difference(listener.frames, stored)}")
        if hopping and b"".join(hopping.frames) != stored:
            problems.append(f"who hopped from server to server saw {_difference(hopping.frames, stored)}")
        try:
            check(read(stored))
        except (AssertionError, KeyError, IndexError) as error:
            problems.append(f"a promise of the protocol is broken: {error!r}")
            return
        if answer.is_given_up or problems:
            return
        if not (isinstance(listener.events[-1], Done) and listener.events[-1].finish_reason == "stop"):
            problems.append(f"it ended with {listener.events[-1]!r}")
            return
        problems += self._look_at_calls(answer) or await self._look_at_chat(answer)

    async def _stored_frames(self, answer: Answer) -> bytes:
        stored_runs = self.stage.engine.store.stored_runs("looks")
        assert stored_runs
        deadline = time.monotonic() + KEPT_SECONDS
        while True:
            found = (await stored_runs.find([answer.run_id])).get(answer.run_id)
            if found is None:
                answer.problems.append("the store has no such run")
                return b""
            if found.is_ended or time.monotonic() > deadline:
                break
            # Another process writes it.
            await asyncio.sleep(0.1)
        answer.is_given_up = found.losses >= MAX_LOSSES and isinstance(answer.listener.events[-1], Error)
        if not found.is_ended:
            answer.problems.append(f"the store has not seen its end: {found}")
        frames: list[bytes] = []
        while more := await stored_runs.read(answer.run_id, len(frames), 2**20):
            frames += more
        return b"".join(frames)

    def _look_at_calls(self, answer: Answer) -> list[str]:
        """Find calls that were not planned, or ended as they must not, and words that do not follow from them."""
        plan = Plan.of(answer.question)
        results = _results_of(answer.listener.events)
        if results.keys() != plan.calls.keys():
            return [f"it made the calls {sorted(results)} and not {sorted(plan.calls)}"]
        ran = Counter(line.split()[1] for line in self._ran_lines())
        problems = []
        for order, output in results.items():
            ending = plan.calls[order].may_end_with(output)
            self.calls[ending or "wrong"] += 1
            if not ending:
                problems.append(f"{order} ended with {output!r}")
            if ending == "done" and not ran[order]:
                problems.append(f"{order} ended well and never ran")
            is_refused = plan.calls[order].is_refused
            if ran[order] and (is_refused or ending == "refused"):
                problems.append(f"{order} was refused and ran")
            if is_refused and ending == "unknown" and order in answer.listener.asked:
                problems.append(f"{order} was refused and ended with {output!r}")
        said = text_of(answer.listener.events)
        wanted = plan.whole_text(results)
        return problems if said == wanted else [*problems, f"it says {said!r} and not {wanted!r}"]

    async def _look_at_chat(self, answer: Answer) -> list[str]:
        """Find what of the turn's messages is not as the listener saw it."""
        seen = ([answer.question], text_of(answer.listener.events), _results_of(answer.listener.events))
        deadline = time.monotonic() + CHAT_SECONDS
        while (kept := await self._kept_turn(answer)) != seen:
            if time.monotonic() > deadline:
                return [f"the chat has {kept}, and the listener saw {seen}"]
            # Of a turn whose database was away at its end the last is written a while after that is back.
            await asyncio.sleep(0.1)
        return []

    async def _kept_turn(self, answer: Answer) -> tuple[list[str | None], str, dict[str, str | None]]:
        """What was asked, what was said, and what came of each call by its order, as the chat has it."""
        chats = self.stage.engine.store.chats(answer.listener.body["user"]["id"])
        rows = [one for one in await chats.messages(answer.listener.body["chat_id"]) if one.run_id == answer.run_id]
        asked = [row.content for row in rows if row.role == "user"]
        said = "".join(row.content or "" for row in rows if row.role == "assistant")
        return (
            asked,
            said,
            {json.loads(str(row.arguments))["order"]: row.tool_output for row in rows if row.role == "tool"},
        )

    def _doubled(self) -> list[str]:
        """Find effects that were brought about twice."""
        effects = [line.split() for line in self._ran_lines()]
        by_order = Counter(order for _, order, _ in effects)
        return [
            f"{order} ran {times} times"
            for order, times in by_order.items()
            if times > 1 and not Plan.of(order.partition("/")[0]).calls[order].may_repeat
        ]

    def _ran_lines(self) -> list[str]:
        return self.stage.ran.read_text().splitlines() if self.stage.ran.exists() else []

    # --- Faults -----------------------------------------------------------------------------------------------------

    async def _let_happen(self, kind: str, server: Server) -> None:
        """Let a fault happen to a server, and return when it is as before."""
        name = kind
        if kind == "kill at a step":
            step = self.chance.choice(STEPS)
            reached = asyncio.get_running_loop().create_future()
            self._awaited[reached] = (step, server)
            with suppress(TimeoutError):
                await asyncio.wait_for(reached, STEP_SECONDS)
            del self._awaited[reached]
            name = f"kill when {step}"
        self.faults.append(kind)
        for run_id, answer in self._live.items():
            if run_id in server.owned or answer.listener.is_parked:
                answer.faults.append(name if run_id in server.owned else f"{name} while parked")
        match kind:
            case "kill" | "kill at a step":
                await server.end(signal.SIGKILL)
                await asyncio.sleep(self.chance.choice((0, 0, 0, 2)))
                await server.start()
            case "restart":
                await server.end(signal.SIGTERM)
                await server.start()
            case "stop and continue":
                await self._stop(server)
            case "clock":
                server.signal(self.chance.choice((signal.SIGUSR1, signal.SIGUSR2)))
            case _:
                async with self.stage.engine.disturbances[kind](server.number):
                    await asyncio.sleep(self.chance.uniform(0.1, 2.5))
        self._befallen.remove(server)

    def _reach(self, step: str, run_id: str) -> None:
        """Let the kills happen that wait for a step of a run that their server goes on with, or no server."""
        for reached, (awaited, server) in self._awaited.items():
            is_hit = run_id in server.owned or self._live[run_id].listener.is_parked
            if step == awaited and is_hit and not reached.done():
                reached.set_result(None)

    async def _stop(self, server: Server) -> None:
        """Stop a server for a while; half of the time the balancer notices."""
        is_noticed = self.chance.random() < 0.5
        server.signal(signal.SIGSTOP)
        if is_noticed:
            self.stage.balancer.drop(server.name)
        await asyncio.sleep(self.chance.uniform(0.1, 2.5 * LEASE_SECONDS))
        server.signal(signal.SIGCONT)
        if is_noticed:
            self.stage.balancer.add(server.name, server.port)

    async def _choose_server(self) -> Server:
        """Return a server that nothing happens to, and whose runs others may still take over."""
        while True:
            free = [one for one in self.stage.servers if one not in self._befallen and self._may_fall(one)]
            if free and not self._is_at_stake():
                return self.chance.choice(free)
            # Faults end and runs change hands in tasks and processes of their own.
            await asyncio.sleep(0.05)

    def _may_fall(self, server: Server) -> bool:
        return all(owners < MAX_LOSSES for owners in server.owned.values())

    def _is_at_stake(self) -> bool:
        """Whether the next owner of a run, nobody knows yet which, is the last that it may have."""
        owned = {run_id for server in self.stage.servers for run_id in server.owned}
        return any(self._owners.get(run_id, 0) >= MAX_LOSSES - 1 for run_id in self._live if run_id not in owned)


def text_of(events: Sequence[Event]) -> str:
    """What the user reads at the end."""
    said: list[str] = []
    settled = 0
    for event in events:
        match event:
            case Message(content=content):
                said.append(content)
            case ToolCallStart() | ToolCallComplete() | ToolCallError():
                settled = len(said)
            case Rewind():
                del said[settled:]
            case _:
                pass
    return "".join(said)


def _results_of(events: Sequence[Event]) -> dict[str, str]:
    """What came of each call that started, as the model is told, by its order.

    A call whose server was killed before it started has an end too. The model is not told of it and makes it again.
    """
    orders: dict[str, str] = {}
    results: dict[str, str] = {}
    for event in events:
        match event:
            case ToolCallStart(tool_call_id=call_id, tool_args=dict(arguments)):
                orders[call_id] = arguments["order"]
            case ToolCallComplete(tool_call_id=call_id, result=result):
                results[orders[call_id]] = result
            case ToolCallError(tool_call_id=call_id, error=error) if call_id in orders:
                results[orders[call_id]] = error if error.startswith("Error:") else f"Error: {error}"
            case _:
                pass
    return results


def _difference(seen: Sequence[bytes], stored: bytes) -> str:
    """Say where two streams differ."""
    kept = [frame + b"\n\n" for frame in stored.split(b"\n\n") if frame]
    for place, (one, other) in enumerate(zip(seen, kept, strict=False), 1):
        if one != other:
            return f"as event {place} {one!r}, and the store has {other!r}"
    return f"{len(seen)} events, and the store has {len(kept)}"
