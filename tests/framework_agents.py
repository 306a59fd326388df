"""Agents of the OpenAI SDK and of five frameworks as programs, as their users would write them.

Leaves out: the same calls without a framework (`plain_agents`).
"""

from plain_agents import LANGGRAPH, TOLD, calculator, chat_of, offer, results_of, score

# The OpenAI SDK


def openai_sdk(task, endpoint):
    from openai import OpenAI

    messages = chat_of(task)
    with OpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0) as client:
        while True:
            answer = client.chat.completions.create(model="solver", messages=messages, tools=[offer(LANGGRAPH)])
            message = answer.choices[0].message
            if not message.tool_calls:
                return score(message.content, task)
            messages += [message, *results_of(message.model_dump())]


# LangGraph


def model_of(endpoint):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="solver", base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0)


def langgraph(task, endpoint):
    from langchain.agents import create_agent

    agent = create_agent(model_of(endpoint), [calculator], system_prompt=TOLD)
    return score(agent.invoke({"messages": [("user", task.data["problem"])]})["messages"][-1].content, task)


def langgraph_streamed(task, endpoint):
    from langchain.agents import create_agent

    agent = create_agent(model_of(endpoint), [calculator], system_prompt=TOLD)
    pieces = agent.stream({"messages": [("user", task.data["problem"])]}, stream_mode="messages")
    return score("".join(piece.text for piece, _ in pieces if piece.type == "AIMessageChunk"), task)


# LangChain's structured output


def structured(task, endpoint, method="function_calling"):
    from pydantic import BaseModel

    class Answer(BaseModel):
        """The answer."""

        value: int

    found = model_of(endpoint).with_structured_output(Answer, method=method).invoke(task.data["problem"])
    return score(found.value, task)


def structured_by_schema(task, endpoint):
    return structured(task, endpoint, "json_schema")


# The OpenAI Agents SDK, where the solver hands over to the checker


async def openai_agents(task, endpoint, use_responses=True):
    from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0) as client:
        provider = OpenAIProvider(openai_client=client, use_responses=use_responses)
        checker = Agent(name="checker", instructions="Check it.", model="checker")
        solver = Agent(name="solver", instructions=TOLD, model="solver", tools=[function_tool(calculator)],
                       handoffs=[checker])  # fmt: skip
        config = RunConfig(model_provider=provider, tracing_disabled=True)
        return score((await Runner.run(solver, task.data["problem"], run_config=config)).final_output, task)


async def openai_agents_by_chat(task, endpoint):
    return await openai_agents(task, endpoint, use_responses=False)


# smolagents


def smolagent(kind, endpoint=None):
    import smolagents
    from smolagents import tool

    model = endpoint and smolagents.OpenAIServerModel(
        "solver", api_base=endpoint.base_url, api_key=endpoint.api_key, client_kwargs={"max_retries": 0}
    )

    @tool
    def calculator(expression: str) -> str:
        """Work out a sum.

        Args:
            expression: The sum.
        """
        from plain_agents import calculator

        return calculator(expression)

    return getattr(smolagents, kind)([calculator], model, verbosity_level=0)


def smolagents_tools(task, endpoint):
    return score(smolagent("ToolCallingAgent", endpoint).run(task.data["problem"]), task)


def smolagents_code(task, endpoint):
    return score(smolagent("CodeAgent", endpoint).run(task.data["problem"]), task)


# pydantic-ai, with an output type


async def pydantic_ai(task, endpoint):
    from openai import AsyncOpenAI
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Answer(BaseModel):
        value: int

    async with AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0) as client:
        model = OpenAIChatModel("solver", provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, system_prompt=TOLD, tools=[calculator], output_type=Answer)
        return score((await agent.run(task.data["problem"])).output.value, task)


# AutoGen


async def autogen(task, endpoint, streams=False):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    about = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False,
             "family": "unknown"}  # fmt: skip
    client = OpenAIChatCompletionClient(
        model="solver", base_url=endpoint.base_url, api_key=endpoint.api_key, model_info=about, max_retries=0
    )
    agent = AssistantAgent("solver", client, tools=[calculator], system_message=TOLD, reflect_on_tool_use=True,
                           model_client_stream=streams)  # fmt: skip
    said = (await agent.run(task=task.data["problem"])).messages[-1].content
    await client.close()
    return score(said, task)


async def autogen_streamed(task, endpoint):
    return await autogen(task, endpoint, streams=True)
