-- What passes of an answer: when its first content came, what it says of tokens, and whether its key still holds.
local clock = require("clock")
local counts = require("counts")
local protocols = require("protocols")
local requests = require("requests")

local watching = {}

-- A member of an answer that has content, as engines write it; what they quote has a backslash before each quote.
local CONTENT = {
  '"content"%s?:%s?"[^"]', '"reasoning_content"%s?:%s?"[^"]', '"reasoning"%s?:%s?"[^"]', '"text"%s?:%s?"[^"]',
  '"delta"%s?:%s?"[^"]', '"tool_calls"%s?:%s?%[%s*{', '"thinking"%s?:%s?"[^"]', '"partial_json"%s?:%s?"[^"]',
  '"type"%s?:%s?"tool_use"',
}
local TOKENS = {
  { "prompt", '"prompt_tokens"%s?:%s?(%d+)' }, { "prompt", '"input_tokens"%s?:%s?(%d+)' },
  { "completion", '"completion_tokens"%s?:%s?(%d+)' }, { "completion", '"output_tokens"%s?:%s?(%d+)' },
  -- Anthropic's protocol counts these beside `input_tokens`
  { "cached", '"cache_read_input_tokens"%s?:%s?(%d+)' }, { "created", '"cache_creation_input_tokens"%s?:%s?(%d+)' },
  -- OpenAI's counts these within the prompt's
  { "reused", '"cached_tokens"%s?:%s?(%d+)' },
  -- all that some engines name of a reranking
  { "total", '"total_tokens"%s?:%s?(%d+)' },
}
-- The end of an event, and the event with nothing but tokens.
local EVENT_END, NO_CHOICE, USAGE = "\r?\n\r?\n", '"choices"%s*:%s*%[%s*%]', '"usage"%s*:%s*{'
-- What ends a stream of events, in the words of a refusal.
local LEFT = { 503, "what answers is being exchanged: ask again", "service_unavailable" }
local GONE = { 401, "this key was revoked", "invalid_api_key" }
-- Bytes that are looked at again with what follows them: more than the longest of these takes.
local KEPT = 64
-- Bytes of an event that waits for its end.
local MOST_EVENT = 65536
-- Of a number of tokens: what an engine says beyond is none, and added up it would be infinite.
local MOST_DIGITS = 9

local function first(request, text)
  for _, pattern in ipairs(CONTENT) do
    if text:find(pattern) then
      request.first = ngx.now() - ngx.req.start_time()
      return
    end
  end
end

local function tokens(request, text)
  if not text:find('_tokens"', 1, true) or not protocols.computes() then return end
  for _, one in ipairs(TOKENS) do
    -- The largest one holds: some engines count with each part, and what an answer quotes of a client's names may have
    -- a smaller one.
    for number in text:gmatch(one[2]) do
      if #number <= MOST_DIGITS then request[one[1]] = math.max(request[one[1]] or 0, tonumber(number)) end
    end
  end
end

-- Without the event of tokens that the client did not ask for. What is not a whole event yet waits for its end, which
-- no client can use before; one that is too long passes in parts.
local function hide_usage(request, chunk, last)
  local before = request.partial or ""
  local text, shown, from = before .. chunk, {}, 1
  -- the end of an event may have begun before
  local first, final = text:find(EVENT_END, math.max(1, #before - 2))
  while first do
    local event = text:sub(from, final)
    if not (event:find(NO_CHOICE) and event:find(USAGE)) then shown[#shown + 1] = event end
    from = final + 1
    first, final = text:find(EVENT_END, from)
  end
  local rest = text:sub(from)
  if last or #rest > MOST_EVENT then
    shown[#shown + 1], rest = rest, ""
  end
  request.partial = rest
  return table.concat(shown)
end

function watching.watch()
  -- bytes without a status: nginx takes them for HTTP/0.9, and would pass on whatever headers they hold
  if ngx.req.http_version() < 1 then return ngx.ERROR end
  local request, chunk = requests.current(), ngx.arg[1]
  if not request or not request.instance then return end
  -- all that its engine had to say; the client may take its time
  if ngx.arg[2] then
    counts.give(request)
    request.ended = true
  end
  if not chunk or chunk == "" then
    if ngx.arg[2] and request.partial and request.partial ~= "" then ngx.arg[1] = hide_usage(request, "", true) end
    return
  end
  if request.told then return ngx.ERROR end
  -- words of the gateway's own, beside the answer
  if request.aside then return end
  local now = clock.now()
  if now - (request.looked or 0) >= 1 then
    request.looked = now
    counts.set("heard " .. request.instance, math.floor(now))
    local events = (ngx.header["Content-Type"] or ""):sub(1, 17) == "text/event-stream"
    local gone = request.key ~= "" and counts.gone(request.key)
    if gone and not events then return ngx.ERROR end
    -- another answer has begun, and is whole in a moment
    if gone or (events and counts.cut(request.seat)) then
      -- once told why, the client is cut off with the next piece, and with it the engine
      request.told = true
      ngx.arg[1] = protocols.event(unpack(gone and GONE or LEFT))
      return
    end
  end
  local text = (request.tail or "") .. chunk
  if not request.first then first(request, text) end
  if request.key ~= "" then
    for _ in chunk:gmatch("\n\r?\n") do request.events = (request.events or 0) + 1 end
  end
  tokens(request, text)
  request.tail = text:sub(-KEPT)
  if request.hides_usage and ngx.status == 200 then ngx.arg[1] = hide_usage(request, chunk, ngx.arg[2]) end
end

return watching
