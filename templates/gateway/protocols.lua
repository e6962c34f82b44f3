-- The protocols of clients, and how each writes an error. A request's path decides which one it is.
local cjson = require("cjson")
local json = require("cjson.safe")

local protocols = {}

-- Anthropic's paths have this part; so have those of its clients with a wrong base URL, such as /v1/v1/messages.
local MESSAGES = "/v1/messages/"
-- Counts tokens and computes none.
local COUNTING = "messages/count_tokens"

local OPENAI = {
  types = {
    [401] = "authentication_error", [403] = "permission_error", [404] = "not_found_error", [429] = "rate_limit_error",
  },
  client = "invalid_request_error",
  server = "server_error",
  event = "",
  error = function(kind, message, code)
    return { error = { message = message, type = kind, param = cjson.null, code = code or cjson.null } }
  end,
}
-- Events of OpenAI's Responses: its documentation has the members of an error flat, its clients look for `error`.
local RESPONSES = {
  types = OPENAI.types,
  client = OPENAI.client,
  server = OPENAI.server,
  event = "event: error\n",
  error = function(kind, message, code)
    local value = OPENAI.error(kind, message, code)
    value.type, value.sequence_number = "error", 0
    value.message, value.code, value.param = message, value.error.code, cjson.null
    return value
  end,
}
local ANTHROPIC = {
  types = {
    [401] = "authentication_error", [403] = "permission_error", [404] = "not_found_error", [413] = "request_too_large",
    [429] = "rate_limit_error", [503] = "overloaded_error",
  },
  client = "invalid_request_error",
  server = "api_error",
  event = "event: error\n",
  error = function(kind, message)
    return { type = "error", error = { type = kind, message = message } }
  end,
}

-- By the path as it came: a refusal leads a request to other locations.
local function is_anthropic()
  local path = (ngx.var.request_uri or ""):match("^[^?]*")
  return (path .. "/"):find(MESSAGES, 1, true) ~= nil
end

local function current()
  return is_anthropic() and ANTHROPIC or OPENAI
end

local function render(protocol, status, message, code)
  local kind = protocol.types[status] or (status < 500 and protocol.client or protocol.server)
  -- cjson escapes slashes; messages name paths
  return (cjson.encode(protocol.error(kind, message, code)):gsub("\\/", "/"))
end

-- An error as JSON; the code is for programs.
function protocols.render(status, message, code)
  return render(current(), status, message, code)
end

-- The same as the last event of a stream.
function protocols.event(status, message, code)
  local protocol = ngx.var.rw_path == "responses" and RESPONSES or current()
  return "\n\n" .. protocol.event .. "data: " .. render(protocol, status, message, code) .. "\n\n"
end

-- Whether errors of the router and of engines, which have OpenAI's shape, need another one.
protocols.translates = is_anthropic

-- The message of such an error, without addresses of objects: on Anthropic's paths vLLM leaves them in its messages
-- (PYSEC-2026-3408), which help to take it over.
function protocols.message(text)
  local found = json.decode(text)
  local error = type(found) == "table" and found.error
  local message = type(error) == "table" and error.message
  if type(message) ~= "string" then message = "the request was refused" end
  return (message:gsub("0x%x+", "0x"))
end

-- Such an error in the shape of the request's protocol.
function protocols.translate(status, text)
  return protocols.render(status, protocols.message(text))
end

-- Whether the tokens that an answer names were computed for it.
function protocols.computes()
  return ngx.var.rw_path ~= COUNTING
end

return protocols
