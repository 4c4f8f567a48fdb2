"""The OpenAI Agents SDK."""

from typing import Any

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

QUIET = RunConfig(tracing_disabled=True)


async def converse(order: dict[str, Any]) -> dict[str, Any]:
    own_calls, answers = 0, []

    @function_tool
    def look_up(word: str) -> str:
        """Looks a word up."""
        nonlocal own_calls
        own_calls += 1
        return "mine"

    headers = order["headers"]
    async with AsyncOpenAI(base_url=order["base_url"], api_key="key", max_retries=0, default_headers=headers) as client:
        agent = Agent("Librarian", model=OpenAIResponsesModel("librarian", client), tools=[look_up])
        said: list[Any] = []
        for question in order["questions"]:
            said.append({"role": "user", "content": question})
            if order["streamed"]:
                streamed = Runner.run_streamed(agent, said, run_config=QUIET)
                async for _ in streamed.stream_events():
                    pass
                answer, said = streamed.final_output, streamed.to_input_list()
            else:
                result = await Runner.run(agent, said, run_config=QUIET)
                answer, said = result.final_output, result.to_input_list()
            answers.append(answer)
    return {"answers": answers, "own_calls": own_calls}
