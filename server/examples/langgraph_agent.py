"""An agent of LangChain in Open WebUI: `CALLBOARD_AGENTS=server/examples/langgraph_agent.py callboard serve`."""

from os import environ as env

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.chat_models import init_chat_model
from langgraph.checkpoint.memory import InMemorySaver

from callboard import register, report_status
from callboard.frameworks.langgraph import from_langgraph


def find_recipes(ingredient: str) -> list[str]:
    """Finds recipes with an ingredient."""
    report_status("processing", f"looking for {ingredient}", progress=50)
    return [f"{ingredient} soup, 20 minutes", f"{ingredient} pie, 50 minutes"]


def order_groceries(recipe: str) -> str:
    """Orders the groceries for a recipe, once the user has agreed."""
    return f"The groceries for {recipe} arrive tomorrow at ten."


key = env.get("CALLBOARD_MODEL_API_KEY", "none")
model = init_chat_model("openai:" + env["CALLBOARD_MODEL"], base_url=env["CALLBOARD_MODEL_BASE_URL"], api_key=key)
asks = HumanInTheLoopMiddleware({"order_groceries": {"allowed_decisions": ["approve", "reject"]}})
agent = create_agent(model, [find_recipes, order_groceries], middleware=[asks], checkpointer=InMemorySaver())
register(from_langgraph(agent, agent_id="kitchen", name="Cook", description="Finds recipes, orders groceries."))
