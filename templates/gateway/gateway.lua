-- What nginx does with each request; the rest lies beside. The configuration calls what this module has, by phase.
local answers = require("answers")
local body = require("body")
local callers = require("callers")
local connections = require("connections")
local counts = require("counts")
local instances = require("instances")
local paths = require("paths")
local requests = require("requests")
local settings = require("settings")
local telling = require("telling")
local upload = require("upload")
local usage = require("usage")
local waking = require("waking")
local watching = require("watching")

local fail = answers.fail

-- No client of ours sends more headers than this; openai's own sends twenty.
local MOST_HEADERS = 64
-- Bodies up to this many bytes go to the router's process that answers everybody: it reads them in a millisecond.
local LIGHT = 262144
-- Seconds after which to come again: there is room when any of many answers ends, and an engine takes longer to start.
local SOON, LATER = 1, 10
-- Instances that a request is sent to, one after the other, where those before have not got it or are being stopped;
-- nginx itself ends one that goes around ten times.
local MOST_TRIES = 5

-- What two readers could understand in two ways where it comes twice.
local SINGLE = {
  "authorization", "content-encoding", "content-length", "content-type", "expect", "host", "origin",
  "transfer-encoding", "x-api-key",
}

local gateway = {
  finish = usage.flush,
  failed = answers.failed, headers = answers.headers, page = answers.page,
  watch = function() return watching.watch() or answers.translate() end,
  log = telling.log,
  metrics = telling.metrics, scrape = telling.scrape, state = telling.state, revoked = telling.revoked, leaving = telling.leaving,
  probe = instances.probe, probed = connections.probed, unknown = answers.unknown, root = answers.root,
}

-- In the process that starts the others; what goes wrong here keeps nginx from starting, and from taking these settings.
function gateway.init(path, posts, of_process)
  -- as in resty/core.lua, for a module of nginx's that does not ask for that: it runs nothing of Lua before this
  jit.off()
  jit.flush()
  settings.read(path)
  callers.init()
  connections.init(of_process)
  paths.init(posts)
  usage.init()
end

function gateway.begin()
  counts.begin()
  connections.begin()
  usage.begin()
end

local function preflight(headers)
  if not headers["origin"] or not headers["access-control-request-method"] then return false end
  ngx.header["Access-Control-Allow-Methods"] = "GET, HEAD, POST"
  -- none reaches an engine but those that the configuration names
  ngx.header["Access-Control-Allow-Headers"] = headers["access-control-request-headers"]
  ngx.header["Access-Control-Max-Age"] = "600"
  if headers["access-control-request-private-network"] then
    ngx.header["Access-Control-Allow-Private-Network"] = "true"
  end
  return true
end

-- Whether a listener is called what it was declared to be, or by an address. A page whose own name was made to lead here
-- (DNS rebinding) is of that name, and a browser says no origin of one that only reads.
local function meant(listener, host)
  local names = settings.names[listener]
  if not names or not host or host:find("^%[") or host:find("^%d+%.%d+%.%d+%.%d+$") or host == "localhost" then return true end
  for _, name in ipairs(names) do
    if host == name or (name:sub(1, 1) == "." and host:sub(-#name) == name) then return true end
  end
  return false
end

local function twice(headers)
  for _, name in ipairs(SINGLE) do
    if type(headers[name]) == "table" then return name end
  end
  for name in pairs(settings.sticky_headers) do
    if type(headers[name]) == "table" then return name end
  end
end

-- Of each request, before anybody else sees it.
function gateway.check()
  if ngx.req.is_internal() then return end
  local request, var = requests.begin(), ngx.var
  local target = var.request:match("^%u+ (/[^ ]*) HTTP/1%.[01]$")
  if not target then return fail(400, "ask with HTTP/1.1, and a path that begins with a slash") end
  local path, uri = target:match("^[^?]*"), var.uri
  if not paths.is_plain(path, uri) then return fail(400, "write the path plainly: without %, dots or a fragment") end
  if connections.is_over(request.client) then
    return fail(429, "too many requests of your address are under way", { retry = SOON })
  end
  local headers, more = ngx.req.get_headers(MOST_HEADERS)
  if more then return fail(431, "there are more than " .. MOST_HEADERS .. " headers") end
  local name = twice(headers)
  if name then return fail(400, "the header " .. name .. " came more than once") end

  if not meant(var.server_name, var.http_host and var.host) then
    return fail(421, "this is not called so: the name would have to be declared", { code = "host" })
  end
  local origin = headers["origin"]
  if origin and not settings.origins[origin] then
    -- a page that may not ask must not be served either: it could not read the answer, but would have it made
    local shown = origin:gsub("[^%w+.:/_~%[%]-]", "?"):sub(1, 128)
    return fail(403, "the origin " .. shown .. " is not declared in gateway.origins", { code = "origin" })
  end
  local method = ngx.req.get_method()
  -- of a path that is not open, too: a browser shows a page no other answer than that to the request that follows
  if method == "OPTIONS" and preflight(headers) then return ngx.exit(204) end
  local wanted = paths.method(path)
  if not wanted then return answers.unknown() end
  if method ~= wanted and not (method == "HEAD" and wanted == "GET") then
    ngx.header["Allow"] = wanted == "GET" and "GET, HEAD" or wanted
    return fail(405, "this path takes " .. wanted)
  end
  -- an engine that agrees would have a tunnel, through which nobody looks
  ngx.req.clear_header("Upgrade")
  local length, chunks = tonumber(headers["content-length"]), headers["transfer-encoding"]
  if length and length > upload.MOST_BODY then
    return fail(413, "the body is larger than " .. upload.MOST_BODY .. " bytes")
  end
  if wanted == "POST" then
    if not length and not chunks then return fail(411, "there is no body: send a JSON object") end
  elseif chunks or (length or 0) > 0 then
    -- nginx would keep it for the router, and nothing here would count it
    return fail(400, "this path takes no body")
  end
  var.rw_path = path:match("^/v1/(.*)$") or ""
  if wanted == "POST" and not (length and length <= LIGHT) then return ngx.exec("@heavy") end
end

local function later(request, status, message, seconds, code)
  counts.give(request)
  return fail(status, message, { retry = seconds, code = code })
end

-- The body of who may ask. Its bytes are taken until the request is answered.
function gateway.receive()
  return upload.receive(requests.current())
end

-- Find who is to answer, and make the request one of theirs; nothing where no instance can have it.
local function take(request)
  local model = settings.models[request.model]
  local name, last = instances.choose(model, request.sticky, request.tried)
  if settings.remote[name or ""] then ngx.var.rw_last = last and "1" or "" end
  if not name then return nil end
  request.instance = name
  request.tried[name] = true
  counts.take(request, "instance " .. name)
  request.seat = instances.aim(name)
  counts.take(request, "seat " .. request.seat)
  local span, called = request.span, model.engine_name[name]
  if span and called and (called ~= request.called or request.unsalted) then
    span[2] = body.replace(span[1], span[2], called, request.salt)
    request.called, request.unsalted = called, nil
  end
  return name
end

local function place(request)
  if not take(request) then return later(request, 503, "no instance of this model answers now", LATER) end
end

-- Have a stream name its tokens at its end, as the router says where in the body. The client did not ask for that event.
local function ask_for_usage(request, span, quoted)
  local places, text = body.span(span, quoted)
  if not places or not text or not request.span then return end
  body.splice(places[1], places[2], text)
  if places[1] < request.span[1] then
    local longer = #text - (places[2] - places[1])
    request.span[1], request.span[2] = request.span[1] + longer, request.span[2] + longer
  end
  request.hides_usage = true
end

-- After the router has let a request through: limits, and an instance.
function gateway.serve()
  local var, request = ngx.var, requests.current()
  request.key, request.name, request.right = var.rw_key or "", var.rw_name or "", var.rw_wake
  request.model, request.asked = var.upstream_http_x_rw_group, var.upstream_http_x_rw_asked
  request.sticky = var.upstream_http_x_rw_sticky or ""
  request.span, request.called = body.span(var.upstream_http_x_rw_span, var.upstream_http_x_rw_model)
  local salt = var.upstream_http_x_rw_salt
  if salt and salt ~= "" then request.salt, request.unsalted = salt, true end
  local model = settings.models[request.model]
  if not model then return fail(503, "the gateway has just got other settings: ask again", { retry = SOON }) end

  if request.key ~= "" then
    if counts.gone(request.key) then return answers.unauthorized() end
    local limit, streams = tonumber(var.rw_streams), counts.take(request, "key " .. request.key)
    if limit and streams > limit then
      return later(request, 429, "this key may have " .. limit .. " requests under way at once", SOON)
    end
    local used, seconds = usage.refusal(request.name, var.rw_tokens)
    if used then return later(request, 429, used, seconds, "rate_limit_exceeded") end
  end
  local ready = instances.number(model)
  local wakes = ready == 0 and #waking.candidates(model) > 0
  if ready == 0 and not wakes then return later(request, 503, "no instance of this model answers now", LATER) end
  if wakes and not waking.may_wake(request) then return waking.forbid(request) end
  if counts.take(request, "model " .. request.model) > model.slots * math.max(ready, 1) + model.queue then
    return later(request, 429, "too many requests are waiting for this model", SOON)
  end
  request.is_stream = var.upstream_http_x_rw_stream == "1"
  ask_for_usage(request, var.upstream_http_x_rw_edit, var.upstream_http_x_rw_edit_text)
  if wakes then return ngx.exec("@wake") end
  return place(request)
end

-- Wait until an instance of the model is started; a stream is answered from there, others go on as `woken`.
function gateway.wake()
  return waking.wait(requests.current(), take)
end

function gateway.woken()
  return place(requests.current())
end

-- After an instance has given no answer at all: another one, if the request did not reach it, or if it is being stopped.
-- A request that broke one instance would break the next one.
function gateway.again()
  local request, var = requests.current(), ngx.var
  local is_unsent = instances.is_unsent(var.upstream_connect_time)
  -- Another box that closes a connection without an answer is gone, has no such instance for this gateway, or stops it:
  -- of an instance that has ended with the request it says so. For some seconds it gets nothing new.
  if settings.remote[request.instance] and (is_unsent or not instances.is_late(var.upstream_status)) then
    counts.leave(request.seat)
    -- one that was reached may have refused it, and take it where there is no other: it has not been told so yet
    if not is_unsent and var.rw_last ~= "1" then
      counts.refuse(request.instance)
      request.tried[request.instance] = nil
    end
  end
  if not instances.may_go_on(request.seat) then
    return later(request, 503, "the instance ended before it answered, and the request was not sent to another", LATER)
  end
  request.tries = (request.tries or 1) + 1
  if request.tries > MOST_TRIES then return later(request, 503, "no instance of this model answers now", LATER) end
  counts.give(request, "instance " .. request.instance)
  counts.give(request, "seat " .. request.seat)
  counts.count("retries " .. request.instance)
  request.instance = nil
  return place(request)
end

-- What fails in Lua is said at the level that passes nginx's log: below that any client can have a line written.
local function passed(succeeded, ...)
  if succeeded then return ... end
  ngx.log(ngx.ALERT, (...))
  error((...), 0)
end

for name, phase in pairs(gateway) do
  gateway[name] = function(...) return passed(xpcall(phase, debug.traceback, ...)) end
end

return gateway
