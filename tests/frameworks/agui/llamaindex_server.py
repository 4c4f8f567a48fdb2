"""A workflow of LlamaIndex behind AG-UI."""
# mypy: ignore-errors
# The framework is in an environment of its own.

from fastapi import FastAPI
from listening import MODEL_URL, fail, listen, weather, wipe
from llama_index.llms.openai_like import OpenAILike
from llama_index.protocols.ag_ui.router import get_ag_ui_workflow_router

app = FastAPI()
llm = OpenAILike("m", api_base=MODEL_URL, api_key="key", is_chat_model=True, is_function_calling_model=True)
app.include_router(get_ag_ui_workflow_router(llm=llm, backend_tools=[weather, fail, wipe]), prefix="/agent")
listen(app)
