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
}
-- What ends a stream of events, in the words of a refusal.
local LEFT = { 503, "what answers is being exchanged: ask again", "service_unavailable" }
local GONE = { 401, "this key was revoked", "invalid_api_key" }
-- Bytes that are looked at again with what follows them: more than the longest of these takes.
local KEPT = 64
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
    -- the last one holds: some engines count with each part
    for number in text:gmatch(one[2]) do
      if #number <= MOST_DIGITS then request[one[1]] = tonumber(number) end
    end
  end
end

function watching.watch()
  -- bytes without a status: nginx takes them for HTTP/0.9, and would pass on whatever headers they hold
  if ngx.req.http_version() < 1 then return ngx.ERROR end
  local request, chunk = requests.current(), ngx.arg[1]
  if not request or not request.instance then return end
  -- all that its engine had to say; the client may take its time
  if ngx.arg[2] then counts.give(request) end
  if not chunk or chunk == "" then return end
  if request.told then return ngx.ERROR end
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
  tokens(request, text)
  request.tail = text:sub(-KEPT)
end

return watching
