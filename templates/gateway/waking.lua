-- Requests for a model of which no instance is ready, and one is started on demand: they wait here. The service that
-- loads models (its socket: settings.wake) says how long, and the outcome; it decides, and this asks.
local answers = require("answers")
local clock = require("clock")
local counts = require("counts")
local instances = require("instances")
local protocols = require("protocols")
local relay = require("relay")
local settings = require("settings")

local waking = {}

-- Bytes of a line of the service's, and of the text of a refusal.
local MOST_LINE, MOST_TEXT = 512, 200
-- Lines that it may send in that many seconds: it says something at most every five.
local MOST_LINES, LINES_IN = 20, 5
-- Seconds to connect, and for which it may be silent: as long as systemd, which holds its socket, gives it to start.
local CONNECT, SILENT = 5, 60
-- Connections in a row that end within that many seconds: a service that was killed begins again.
local MOST_CONNECTIONS, STEADY, PAUSE = 5, 5, 0.2
-- Seconds that a stream waits at most; others wait as long as `wait` of the gateway allows.
local MOST_WAIT = 3600
-- Seconds between two comments, at least and at most; and while the service is silent.
local OFTEN, SELDOM, UNHEARD = 1, 5, 10
-- Seconds until a loaded instance is in the rotation, which the router looks at every ten, and between two looks.
local ROTATION, SOON = 12, 0.1
-- Seconds after which to come again where nothing better is known, and at most.
local LATER, LATEST = 10, 86400
-- Seconds that an engine may be silent, as for nginx's proxy (proxy_read_timeout).
local SILENCE = 3600
-- Pieces of an answer after which others have their turn.
local TURN = 16
-- Instances that a request is sent to, one after the other, as in gateway.lua.
local MOST_TRIES = 5
-- Bytes of an engine's error, and of its message, and the seconds in which it has to come.
local MOST_ERROR, MOST_MESSAGE, ERROR_IN = 65536, 2048, 15

-- Paths whose answers may be streams, and those whose streams end with a mark.
local STREAMED = { ["chat/completions"] = true, ["completions"] = true, ["responses"] = true, ["messages"] = true }
local MARKED = { ["chat/completions"] = true, ["completions"] = true }
local MARK = "data: [DONE]\n\n"

-- Words of refusals.
local REFUSALS = { busy = true, failed = true, memory = true, forbidden = true }
local GONE = "the service that loads models does not answer: ask again"
local UNREADABLE = "the service that loads models cannot be understood"
local ENDED = "the instance ended before it answered, and the request was not sent to another"
local CUT = "the instance ended before its answer was complete"
local NOT_READY = "the model was loaded, and no instance of it answers now"
local REVOKED = "this key was revoked"
local FORBIDDEN = "the model is asleep, and this key may not wake it: ask again once another client has"

-- Instances that may be started for a model; none where all are kept out of the rotation.
function waking.candidates(model)
  local found = {}
  for _, name in ipairs(model.on_demand or {}) do
    if instances.may_wake(name) then found[#found + 1] = name end
  end
  return found
end

-- Whether a request may have an instance started, by its key.
function waking.may_wake(request)
  return request.right ~= "none"
end

-- Whether others may be stopped for it: its listener and its key allow that.
function waking.may_evict(request)
  return settings.wake.evict[ngx.var.server_name] and (request.key == "" or request.right == "evict")
end

-- A line of the service's: its word and values; nothing for what is none.
function waking.parse(line)
  local position, seconds = line:match("^waiting (%d+) (%S+)$")
  local is_number = seconds and #position <= 6 and (seconds == "-" or (seconds:find("^%d+$") and #seconds <= 6))
  if is_number then return "waiting", tonumber(position), tonumber(seconds) end
  if line == "ready" then return "ready" end
  local code, again, text = line:match("^refused (%l+) (%S+) ([ -~]+)$")
  if not code or not REFUSALS[code] or #text > MOST_TEXT then return nil end
  if again ~= "-" and not (again:find("^%d+$") and #again <= 6) then return nil end
  return code, tonumber(again), text
end

function waking.comment(position, seconds)
  return (": waiting, position %d%s\n\n"):format(position, seconds and (", about %d s"):format(seconds) or "")
end

-- Send a piece of a stream to the client; its first one sends the status. False once it cannot be sent.
local function send(request, text)
  if not request.wake.sent then
    request.wake.sent = true
    -- until an instance answers: as nginx has it of a client that leaves before
    request.answered = request.answered or 499
    ngx.status = 200
    ngx.header["Content-Type"] = "text/event-stream"
    ngx.header["Cache-Control"] = "no-cache"
  end
  local printed = ngx.print(text)
  return printed and ngx.flush(true) ~= nil
end

-- Words of the gateway's, in which nothing of an answer is looked for.
local function say(request, text)
  request.aside = true
  local sent = send(request, text)
  request.aside = nil
  return sent
end

-- End the request with an error: as an answer, or as the last event of a stream that has begun.
local function fail(request, status, message, seconds, code)
  local wake = request.wake
  if not wake.sent then
    counts.give(request)
    if status == 401 then return answers.unauthorized() end
    return answers.fail(status, message, { retry = seconds, code = code })
  end
  -- as much as an answer that was none counts
  request.answered = status
  say(request, protocols.event(status, message, code) .. (MARKED[ngx.var.rw_path] and MARK or ""))
end

-- Cut a stream off, so that no client takes it for a whole one. It counts as its instance has answered it.
local function cut(request, status, message, code)
  if message then say(request, protocols.event(status, message, code)) end
  return ngx.exit(ngx.ERROR)
end

local function is_gone(request)
  return request.key ~= "" and counts.gone(request.key)
end

-- The next line of the service's; nothing, and why: "timeout" where it may yet come.
local function next_line(reader)
  local look = clock.now() + relay.LOOK / 1000
  while true do
    local at = reader.kept:find("\n", 1, true)
    if (at or #reader.kept) > MOST_LINE then return nil, "unreadable" end
    if at then
      local found = reader.kept:sub(1, at - 1)
      reader.kept = reader.kept:sub(at + 1)
      return found
    end
    if clock.now() >= look then return nil, "timeout" end
    local piece, why = reader.socket:receiveany(MOST_LINE)
    if not piece then return nil, why end
    reader.kept = reader.kept .. piece
  end
end

-- `age`: the milliseconds that the request has waited, for a service that knows that word.
local function connect(request, name, age)
  local var, socket = ngx.var, ngx.socket.tcp()
  socket:settimeouts(1000 * CONNECT, 1000 * CONNECT, relay.LOOK)
  local may_evict = waking.may_evict(request) and 1 or 0
  local key = request.key ~= "" and request.key or "-"
  if not socket:connect("unix:" .. settings.wake.socket) then return nil end
  local line = ("wake %s %s %s %d"):format(name, var.server_name, key, may_evict)
  if not socket:send(line .. (age and (" %d\n"):format(age) or "\n")) then return nil end
  return { socket = socket, kept = "" }
end

-- Wait on one connection for the outcome: its word, with seconds and a text for a refusal. "closed" where it breaks.
local function listen(request, reader)
  local wake, heard, lines, since = request.wake, clock.now(), 0, clock.now()
  while true do
    local line, why = next_line(reader)
    local now = clock.now()
    if is_gone(request) then return "revoked" end
    if now - wake.began > wake.limit then return "timeout", wake.seconds end
    if line then
      local word, one, two = waking.parse(line)
      if not word then return "unreadable" end
      if word ~= "waiting" then return word, one, two end
      if now - since > LINES_IN then lines, since = 0, now end
      lines = lines + 1
      if lines > MOST_LINES then return "unreadable" end
      heard, wake.seconds = now, two
      if wake.is_stream and now - (wake.commented or 0) >= OFTEN then
        wake.commented = now
        if not say(request, waking.comment(one, two)) then return "left" end
      end
    elseif why ~= "timeout" then
      return why == "unreadable" and why or "closed"
    elseif now - heard > SILENT then
      return "silent"
    elseif wake.sent and now - (wake.commented or 0) >= UNHEARD then
      wake.commented = now
      if not say(request, ": waiting for the service that loads models\n\n") then return "left" end
    end
  end
end

-- Have an instance started; the outcome, as `listen` has it. A service that is restarted now and then in a long wait is
-- none that ends again and again.
local function start(request, name)
  local failed, is_understood = 0, true
  while failed < MOST_CONNECTIONS do
    if failed > 0 then ngx.sleep(PAUSE * failed) end
    local began = clock.now()
    local reader = connect(request, name, is_understood and 1000 * (began - request.wake.began))
    if reader then
      local word, seconds, text = listen(request, reader)
      reader.socket:close()
      -- after a rollback, the service of an earlier generation refuses what it cannot read
      if word == "forbidden" and is_understood then
        is_understood, failed = false, -1
      elseif word ~= "closed" then
        return word, seconds, text
      end
      if clock.now() - began >= STEADY then failed = 0 end
    end
    failed = failed + 1
  end
  return "gone"
end

-- Have one of the model's instances started; the outcome of the last one that was tried.
local function start_any(request, model)
  local word, seconds, text
  for _, name in ipairs(waking.candidates(model)) do
    counts.take(request, "waiting " .. name)
    word, seconds, text = start(request, name)
    counts.give(request, "waiting " .. name)
    if word ~= "failed" and word ~= "memory" then break end
  end
  return word, seconds, text
end

-- Whether an instance is in the rotation, or gets there.
local function is_there(request, model)
  for _ = 0, ROTATION, SOON do
    if instances.number(model) > 0 then return true end
    ngx.sleep(SOON)
    local now = clock.now()
    if request.wake.sent and now - (request.wake.commented or 0) >= SELDOM then
      request.wake.commented = now
      if not say(request, ": waiting for the instance\n\n") then return false end
    end
  end
  return false
end

-- The message of an engine's error.
local function read_error(reader, answer)
  local parts, length, began = {}, 0, clock.now()
  while length < MOST_ERROR and clock.now() - began < ERROR_IN do
    local piece, why = relay.piece(reader, answer)
    if piece then
      parts[#parts + 1], length = piece, length + #piece
    elseif why ~= "timeout" then
      break
    end
  end
  local message = protocols.message(table.concat(parts))
  if #message <= MOST_MESSAGE then return message end
  -- no part of a character at its end
  return (message:sub(1, MOST_MESSAGE):gsub("[\192-\255][\128-\191]*$", ""))
end

-- The head of an instance's answer; nothing, and why. Comments go on until it comes.
local function await_head(request, reader, sending)
  local wake, began = request.wake, clock.now()
  while true do
    local answer, why = relay.head(reader)
    if answer or why ~= "timeout" then return answer, why end
    local now = clock.now()
    if now - began > SILENCE then return nil, "timeout" end
    if sending.is_stalled then return nil, relay.STALLED end
    if is_gone(request) then return nil, "revoked" end
    if counts.cut(request.seat) then return nil, "closed" end
    if now - (wake.commented or 0) >= SELDOM then
      wake.commented = now
      if not say(request, ": waiting for the first token\n\n") then return nil, "left" end
    end
  end
end

-- Pass a stream on to its end; why it did not come to that.
local function pass(request, reader, answer)
  local wake, heard, number = request.wake, clock.now(), 0
  while true do
    local piece, why = relay.piece(reader, answer)
    local now = clock.now()
    if piece then
      heard, wake.passed, number = now, true, number + 1
      if not send(request, piece) then return "left" end
      if number % TURN == 0 then ngx.sleep(0) end
    elseif why ~= "timeout" then
      return why
    elseif now - heard > SILENCE then
      return why
    elseif is_gone(request) then
      return "revoked"
    elseif counts.cut(request.seat) then
      return "closed"
    elseif not wake.passed and now - (wake.commented or 0) >= SELDOM then
      wake.commented = now
      if not say(request, ": waiting for the first token\n\n") then return "left" end
    end
  end
end

-- Send the request to the instance that it has been given, and its answer to the client. False, and whether another
-- instance may have the request, where there is none.
local function serve(request)
  local sending = relay.send(ngx.var.rw_path)
  if not sending then return false, true end
  local reader = relay.reader(sending.socket)
  local answer, why = await_head(request, reader, sending)
  if not answer then
    relay.close(sending)
    if why == "left" then return ngx.exit(ngx.ERROR) end
    if why == "revoked" then return fail(request, 401, REVOKED, nil, "invalid_api_key") end
    -- as in gateway.lua: one that has had a part of the request may have ended by it
    if why == "closed" then return false, not sending.has_begun or counts.leaving(request.seat) ~= nil end
    return fail(request, 503, why == "timeout" and "the instance gave no answer in time" or why, LATER)
  end
  request.answered = answer.status
  if answer.status ~= 200 then
    local message = read_error(reader, answer)
    relay.close(sending)
    return fail(request, answer.status < 400 and 502 or answer.status, message)
  end
  if not (answer.kind or ""):lower():find("^text/event%-stream%f[^%w-]") then
    relay.close(sending)
    return fail(request, 502, "the instance did not answer with a stream")
  end
  why = pass(request, reader, answer)
  relay.close(sending)
  if why == "end" then return true end
  if why == "left" then return cut(request) end
  if why ~= "revoked" then return cut(request, 503, CUT, "service_unavailable") end
  if request.wake.passed then return cut(request, 401, REVOKED, "invalid_api_key") end
  return fail(request, 401, REVOKED, nil, "invalid_api_key")
end

-- Send a stream that waits to one instance after another, until one answers.
local function serve_any(request, take)
  for _ = 1, MOST_TRIES do
    if not take(request) then break end
    local served, may_go_on = serve(request)
    if served ~= false then return end
    counts.give(request, "instance " .. request.instance)
    counts.give(request, "seat " .. request.seat)
    if not may_go_on then return fail(request, 503, ENDED, LATER) end
    counts.count("retries " .. request.instance)
    request.instance = nil
  end
  return fail(request, 503, "no instance of this model answers now", LATER)
end

-- Status, message, seconds and code of an outcome that is no instance.
local function refusal(word, seconds, text)
  local again = math.min(math.max(1, seconds or LATER), LATEST)
  if word == "revoked" then return 401, REVOKED, nil, "invalid_api_key" end
  if word == "timeout" then return 503, "the model is still being loaded: ask again", again, "model_asleep" end
  if REFUSALS[word] then return 503, text, again, "model_asleep" end
  return 503, word == "unreadable" and UNREADABLE or GONE, LATER
end

-- Refuse a request whose key wakes nothing.
function waking.forbid(request)
  request.wake = { waited = 0, outcome = "forbidden" }
  return fail(request, 503, FORBIDDEN, LATER, "model_asleep")
end

-- Have a request wait for an instance. `take` gives it one that is ready.
function waking.wait(request, take)
  local model = settings.models[request.model]
  -- by HTTP/1.0 nginx sends nothing of an answer of Lua's before its end
  local may_comment = ngx.req.http_version() >= 1.1 and STREAMED[ngx.var.rw_path] or false
  local wake = { began = clock.now(), is_stream = request.is_stream and may_comment }
  wake.limit = wake.is_stream and MOST_WAIT or settings.wake.wait
  request.wake = wake
  local word, seconds, text = start_any(request, model)
  -- one may have become ready whatever the service says
  if word ~= "revoked" and word ~= "left" and word ~= "ready" and instances.number(model) > 0 then word = "ready" end
  if word == "ready" and not is_there(request, model) then word = "absent" end
  wake.outcome, wake.waited = word, clock.now() - wake.began
  if word == "left" then return ngx.exit(ngx.ERROR) end
  if word == "absent" then return fail(request, 503, NOT_READY, LATER) end
  if word ~= "ready" then return fail(request, refusal(word, seconds, text)) end
  if not wake.sent then return ngx.exec("@woken") end
  return serve_any(request, take)
end

return waking
