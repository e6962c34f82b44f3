-- What is told of requests: to the log, to those who scrape, and to root and the router.
local answers = require("answers")
local cjson = require("cjson")
local clock = require("clock")
local counts = require("counts")
local instances = require("instances")
local requests = require("requests")
local settings = require("settings")
local protocols = require("protocols")
local usage = require("usage")

local telling = {}
-- By name, so that two readings can be compared.
local sorted = usage.sorted

-- What else the line of a request says that had to wait for a load.
local WAITED = ',"waited":%.3f,"wake":%s'
local LINE = '{"time":%s,"client":%s,"listener":%s,"key":%s,"model":%s,"instance":%s,"status":%d,"first":%s,'
  .. '"duration":%s,"prompt_tokens":%s,"completion_tokens":%s,"sent":%s%s%s}'

-- Lines a minute of requests that an instance has had, and of all others: whoever asks could fill the disk else.
local SERVED, REFUSED = 6000, 600

-- Whether there is room for a line; the first time in a minute that there is none, the journal has it.
local function room(served)
  local most, of = served and SERVED or REFUSED, served and "reach an instance" or "reach none"
  local number = counts.minute(of)
  if number == most + 1 then
    ngx.log(ngx.ALERT, "over ", most, " requests that ", of, " in a minute: its others are in /metrics alone")
  end
  return number <= most
end

local function quoted(value)
  return value and value ~= "" and cjson.encode(value) or "null"
end

-- What a request used, once an instance has answered it. An answer that ended early, or names no tokens, is unknown;
-- what it has named until then counts all the same.
local function count_usage(request, status, prompt)
  -- the gateway of another box counts what it has asked for
  if not request.model or not request.instance or status < 200 or status > 299 or not protocols.computes() then return end
  local output = request.completion or 0
  local input = prompt or (not request.completion and request.total) or 0
  local known = request.ended and input + output > 0
  usage.count(request.name or "", request.model, {
    requests = 1, input = input, output = output, unknown = known and 0 or 1,
    cached = math.min(input, math.max(request.reused or 0, request.cached or 0)),
  }, input + math.max(output, known and 0 or request.events or 0))
end

-- How long a request has waited for a load, and the outcome.
local function count_wake(request)
  local wake = request.wake
  if not wake then return 0 end
  -- without one, the client has left
  local outcome, waited = wake.outcome or "left", wake.waited or clock.now() - wake.began
  counts.count(("wakes %s %s"):format(outcome, request.model))
  counts.count("wake_sum " .. request.model, waited)
  counts.count("wake_count " .. request.model)
  return waited, outcome
end

-- After each request, however it ended: take back what it held, and say a line of it.
function telling.log()
  local var = ngx.var
  local request = requests.finish() or { held = {} }
  counts.give(request)
  local status = tonumber(var.status) or 0
  local prompt = request.prompt and request.prompt + (request.cached or 0) + (request.created or 0)
  local waited, outcome = count_wake(request)
  if room(request.instance) then
    var.rw_line = LINE:format(
      quoted(var.time_iso8601), quoted(var.remote_addr), quoted(var.server_name), quoted(var.rw_name),
      quoted(request.asked), quoted(request.instance), status,
      request.first and ("%.3f"):format(request.first) or "null", var.request_time, prompt or "null",
      request.completion or "null", var.bytes_sent, request.refusal and ',"refusal":' .. quoted(request.refusal) or "",
      outcome and WAITED:format(waited, quoted(outcome)) or ""
    )
  end
  counts.count(("requests %d %s %s"):format(status, request.instance or "", request.model or ""))
  -- of a stream that has waited, its instance's own status
  count_usage(request, request.answered or status, prompt)
  if request.instance then
    counts.count("prompt_tokens " .. request.instance, prompt or 0)
    counts.count("completion_tokens " .. request.instance, request.completion or 0)
    if request.first then
      -- an instance is not slower for the time until it was there
      counts.count("first_sum " .. request.instance, math.max(0, request.first - waited))
      counts.count("first_count " .. request.instance)
    end
  end
end

local function labelled(value)
  return cjson.encode(value):gsub("\\/", "/")
end

local function sample(lines, name, labels, value)
  lines[#lines + 1] = ("rigwright_gateway_%s{%s} %s"):format(name, labels, value)
end

local function totals(lines, name, kind)
  lines[#lines + 1] = ("# TYPE rigwright_gateway_%s %s"):format(name, kind)
end

-- Of models on demand: loads that requests waited for, by outcome, how long, and how many wait now.
local function wake_metrics(lines)
  totals(lines, "wakes_total", "counter")
  local found = counts.beginning("total wakes ")
  for _, name in ipairs(sorted(found)) do
    local outcome, model = name:match("^(%l+) (.*)$")
    sample(lines, "wakes_total", ("outcome=%s,model=%s"):format(labelled(outcome), labelled(model)), found[name])
  end
  local waiting = {}
  for _, model in ipairs(sorted(settings.models)) do
    local on_demand = settings.models[model].on_demand
    if on_demand then
      local labels = "model=" .. labelled(model)
      sample(lines, "wake_seconds_sum", labels, counts.get("total wake_sum " .. model))
      sample(lines, "wake_seconds_count", labels, counts.get("total wake_count " .. model))
      for _, name in ipairs(on_demand) do waiting[name] = counts.get("waiting " .. name) end
    end
  end
  totals(lines, "waiting", "gauge")
  for _, name in ipairs(sorted(waiting)) do sample(lines, "waiting", "instance=" .. labelled(name), waiting[name]) end
end

-- Text of Prometheus; `/metrics/INSTANCE` is the engine's own.
function telling.metrics()
  local wanted = ngx.var.uri:match("^/metrics/(.+)$")
  if wanted then
    if not settings.instances[wanted] then return answers.unknown() end
    if not instances.standing(wanted) then return answers.fail(503, wanted .. " does not answer now", { retry = 10 }) end
    instances.aim(wanted)
    return ngx.exec("@scrape")
  end
  local lines = {}
  totals(lines, "requests_total", "counter")
  local found = counts.beginning("total requests ")
  for _, name in ipairs(sorted(found)) do
    local status, instance, model = name:match("^(%d+) (%S*) (.*)$")
    local labels = ("status=%s,instance=%s,model=%s"):format(labelled(status), labelled(instance), labelled(model))
    sample(lines, "requests_total", labels, found[name])
  end
  for _, one in ipairs({
    { "retries", "retries_total" }, { "prompt_tokens", "prompt_tokens_total" },
    { "completion_tokens", "completion_tokens_total" }, { "first_sum", "first_content_seconds_sum" },
    { "first_count", "first_content_seconds_count" },
  }) do
    found = counts.beginning("total " .. one[1] .. " ")
    -- from nothing on: a rate does not see the first of a series that begins with it
    for name in pairs(settings.instances) do found[name] = found[name] or 0 end
    for _, name in ipairs(sorted(found)) do sample(lines, one[2], "instance=" .. labelled(name), found[name]) end
  end
  totals(lines, "key_tokens_total", "counter")
  local used = usage.totals()
  for _, one in ipairs(used) do
    local key, model, numbers = unpack(one)
    for _, kind in ipairs({ "input", "output", "cached" }) do
      local labels = ("key=%s,model=%s,kind=%s"):format(labelled(key), labelled(model), labelled(kind))
      sample(lines, "key_tokens_total", labels, ("%d"):format(numbers[kind] or 0))
    end
  end
  totals(lines, "key_unknown_total", "counter")
  for _, one in ipairs(used) do
    local labels = ("key=%s,model=%s"):format(labelled(one[1]), labelled(one[2]))
    sample(lines, "key_unknown_total", labels, ("%d"):format(one[3].unknown or 0))
  end
  if settings.wake then wake_metrics(lines) end
  totals(lines, "under_way", "gauge")
  totals(lines, "ready", "gauge")
  for _, name in ipairs(sorted(settings.instances)) do
    sample(lines, "under_way", "instance=" .. labelled(name), counts.get("instance " .. name))
    sample(lines, "ready", "instance=" .. labelled(name), instances.is_ready(name) and 1 or 0)
  end
  ngx.header["Content-Type"] = "text/plain; version=0.0.4"
  ngx.print(table.concat(lines, "\n"), "\n")
end

-- The same at a listener, to those whose network is declared.
function telling.scrape()
  -- not `deny`, which writes a line to the journal for each request
  if ngx.var.rw_scraper ~= "1" then return answers.fail(403, "this is not open to your address") end
  return telling.metrics()
end

function telling.state()
  local state = { digest = settings.digest, instances = {}, keys = {}, lent = counts.get("lent") }
  for name in pairs(settings.instances) do
    state.instances[name] = {
      under_way = counts.get("instance " .. name), progress = counts.get("heard " .. name),
      waiting = settings.wake and counts.get("waiting " .. name) or nil,
    }
  end
  for key, number in pairs(counts.beginning("key ")) do
    if number > 0 then state.keys[key] = number end
  end
  ngx.header["Content-Type"] = "application/json"
  ngx.print(cjson.encode(state), "\n")
end

-- A key that holds no more: what runs with it ends with its next words; or one that does again.
function telling.revoked()
  local what, key = ngx.var.uri:match("^/(%l+)/([0-9a-f]+)$")
  if not key or ngx.req.get_method() ~= "POST" then return answers.unknown() end
  counts.revoke(key, what == "gone")
  return ngx.exit(204)
end

-- An instance that is about to be stopped, one of which all is to end, or one that stays after all; how many are under
-- way there.
function telling.leaving()
  local what, seat = ngx.var.uri:match("^/(%l+)/([a-z0-9.-]+)$")
  if not seat or ngx.req.get_method() ~= "POST" then return answers.unknown() end
  if what == "stay" then counts.stay(seat) else counts.leave(seat, what == "cut") end
  ngx.print(counts.get("seat " .. seat), "\n")
end

return telling
