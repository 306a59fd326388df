"""The calls that agents of five frameworks make, as plain programs: the same messages, tools and choices.

Leaves out: the frameworks (`framework_agents`).
"""

import json

RAN = []
"""What the tool worked out."""
AGENTS = ("solver", "checker")
TOLD = "Use the calculator."


def calculator(expression: str) -> str:
    """Work out a sum."""
    RAN.append(expression)
    return str(sum(int(number) for number in expression.split("+")))


def score(said, task):
    return float(str(said).split()[-1:] == [task.data["gold"]])


def offer(parameters, name="calculator", description="Work out a sum."):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def chat_of(task, told=TOLD, **more):
    return [{"role": "system", "content": told}, {"role": "user", "content": task.data["problem"], **more}]


def results_of(message):
    """Run the calls of a message."""
    for call in message.get("tool_calls", ()):
        given = json.loads(call["function"]["arguments"])
        yield {"role": "tool", "tool_call_id": call["id"], "content": calculator(**given)}


# LangGraph

LANGGRAPH = {"properties": {"expression": {"type": "string"}}, "required": ["expression"], "type": "object"}


def langgraph(task, endpoint):
    messages = chat_of(task)
    while True:
        messages.append(endpoint.message("solver", messages, tools=[offer(LANGGRAPH)]))
        if "tool_calls" not in messages[-1]:
            return score(messages[-1]["content"], task)
        messages.extend(results_of(messages[-1]))


# LangChain's structured output

VALUE = {"properties": {"value": {"type": "integer"}}, "required": ["value"], "type": "object"}


def structured(task, endpoint):
    choice = {"type": "function", "function": {"name": "Answer"}}
    options = {"tools": [offer(VALUE, "Answer", "The answer.")], "tool_choice": choice}
    message = endpoint.message("solver", task.data["problem"], **options)
    return score(json.loads(message["tool_calls"][0]["function"]["arguments"])["value"], task)


def structured_by_schema(task, endpoint):
    schema = {"description": "The answer.", "properties": {"value": {"title": "Value", "type": "integer"}},
              "required": ["value"], "title": "Answer", "type": "object", "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "Answer", "schema": schema, "strict": True}}
    return score(json.loads(endpoint("solver", task.data["problem"], response_format=form))["value"], task)


# The OpenAI Agents SDK, where the solver hands over to the checker

TITLED = {"properties": {"expression": {"title": "Expression", "type": "string"}}, "required": ["expression"],
          "title": "calculator_args", "type": "object", "additionalProperties": False}  # fmt: skip
NOTHING = {"additionalProperties": False, "type": "object", "properties": {}, "required": []}
HAND_OVER = "Handoff to the checker agent to handle the request. "


def openai_agents(task, endpoint):
    agent, told, chat = "solver", {"solver": TOLD, "checker": "Check it."}, chat_of(task)[1:]
    tools = {"solver": [offer(TITLED), offer(NOTHING, "transfer_to_checker", HAND_OVER)], "checker": []}
    while True:
        asked = [{"role": "system", "content": told[agent]}, *chat]
        chat.append(endpoint.message(agent, asked, tools=tools[agent]))
        if "tool_calls" not in chat[-1]:
            return score(chat[-1]["content"], task)
        if (call := chat[-1]["tool_calls"][0])["function"]["name"] == "transfer_to_checker":
            agent = "checker"
            chat.append({"role": "tool", "tool_call_id": call["id"], "content": '{"assistant": "checker"}'})
        else:
            chat.extend(results_of(chat[-1]))


# smolagents

ANY = {"type": "object", "properties": {"expression": {"type": "string", "description": "The sum."}},
       "required": ["expression"]}  # fmt: skip
FINAL = {"type": "object",
         "properties": {"answer": {"type": "string", "description": "The final answer to the problem"}},
         "required": ["answer"]}  # fmt: skip
STOPS = ["Observation:", "Calling tools:"]


def remembered(call, said=""):
    """A call as smolagents writes it into the history."""
    return {"role": "assistant", "content": f"{said}Calling tools:\n{[call]}"}


def system_prompt_of(kind):
    """The prompt that smolagents writes about its tools, which is long and its own."""
    from framework_agents import smolagent

    return smolagent(kind).system_prompt


def smolagents_tools(task, endpoint):
    messages = chat_of(task, system_prompt_of("ToolCallingAgent"))
    messages[1]["content"] = f"New task:\n{task.data['problem']}"
    tools = [offer(ANY), offer(FINAL, "final_answer", "Provides a final answer to the given problem.")]
    while True:
        message = endpoint.message("solver", messages, tools=tools, tool_choice="required", stop=STOPS)
        call = message["tool_calls"][0]
        given = json.loads(call["function"]["arguments"])
        if "answer" in given:
            return score(given["answer"], task)
        called = {"id": call["id"], "type": "function", "function": {"name": "calculator", "arguments": given}}
        messages += [remembered(called), {"role": "user", "content": f"Observation:\n{calculator(**given)}"}]


def smolagents_code(task, endpoint):
    messages = chat_of(task, system_prompt_of("CodeAgent"))
    messages[1]["content"] = f"New task:\n{task.data['problem']}"
    said, heard = endpoint("solver", messages, stop=[*STOPS, "</code>"]) + "</code>", []
    code = said.partition("<code>\n")[2].removesuffix("\n</code>")
    exec(code, {"calculator": calculator, "print": heard.append})
    function = {"name": "python_interpreter", "arguments": code}
    seen = f"Observation:\nExecution logs:\n{heard[0]}\nLast output from code snippet:\nNone"
    messages += [remembered({"id": "call_1", "type": "function", "function": function}, f"{said}\n"),
                 {"role": "user", "content": seen}]  # fmt: skip
    return score(endpoint("solver", messages, stop=[*STOPS, "</code>"]).partition("(")[2].partition(")")[0], task)


# pydantic-ai, with an output type

STRICT = {"additionalProperties": False, **LANGGRAPH}
RESULT = {**VALUE, "additionalProperties": False}


def pydantic_ai(task, endpoint):
    messages = chat_of(task)
    tools = [offer(STRICT), offer(RESULT, "final_result", "The final response which ends this conversation")]
    while True:
        messages.append(endpoint.message("solver", messages, tools=tools, tool_choice="required"))
        call = messages[-1]["tool_calls"][0]["function"]
        if call["name"] == "final_result":
            return score(json.loads(call["arguments"])["value"], task)
        messages.extend(results_of(messages[-1]))


# AutoGen

DESCRIBED = {"type": "object",
             "properties": {"expression": {"description": "expression", "title": "Expression", "type": "string"}},
             "required": ["expression"], "additionalProperties": False}  # fmt: skip


def autogen(task, endpoint):
    messages = chat_of(task, name="user")
    messages.append(endpoint.message("solver", messages, tools=[offer(DESCRIBED)]))
    if "tool_calls" in messages[-1]:
        messages.extend(results_of(messages[-1]))
        messages.append(endpoint.message("solver", messages))
    return score(messages[-1]["content"], task)
