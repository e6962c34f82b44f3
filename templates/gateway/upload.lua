-- Reads the body of a request, and counts its bytes as they come: a body that does not come takes nothing.
local answers = require("answers")
local callers = require("callers")
local clock = require("clock")
local counts = require("counts")
local rate = require("rate")
local semaphore = require("ngx.semaphore")

local upload = {}

-- Bytes of a body: up to those it waits in a buffer of its connection's; those that one body may have; those of all
-- bodies together that wait in files, which are memory too, of the gigabyte that the unit may take. The file system of
-- these files has 64 MiB more, for what comes between two looks, and never takes more than it has.
local BUFFER, MOST_BODIES = 65536, 402653184
-- Bytes of all such buffers together. Two processes with 4096 connections each would have 512 MiB of them, beside 264 MiB
-- of headers and the files above, and the unit may take 1 GiB.
local MOST_BUFFERS = 201326592
-- Bytes of the buffers of one caller: a third, as of bodies.
local BUFFER_SHARE = 67108864
upload.MOST_BODY = 67108864
-- Bytes of the bodies of one caller: two of the largest. So a caller can keep neither others' from being taken nor, for
-- long, from being read, for which they wait in turn.
local SHARE = 134217728
-- Seconds for which a large body waits for its caller's earlier ones, and between two looks: of a body that comes fast,
-- and at most. A thousand slow bodies would take a fifth of a core otherwise.
local PATIENCE, PAUSE, LONG_PAUSE = 5, 0.05, 0.8
-- Bytes between two looks, of a body that comes fast.
local FAST = 16384
-- Seconds after which to come again: there is room when any of many answers ends.
local SOON = 1
-- Seconds: longer than nginx keeps a request that it has refused.
local FOREVER = 3600

-- What is wrong with the bytes that a request holds now: a status and a message, or nothing.
function upload.problem(all, mine, came)
  if came > upload.MOST_BODY then return 413, "the body is larger than " .. upload.MOST_BODY .. " bytes" end
  if mine > SHARE then return 429, "too many large requests of yours are under way" end
  if all > MOST_BODIES then return 503, "too many large requests are under way" end
end

-- Hold that many bytes; what is wrong with them. The first ones of each body are held apart: large bodies leave their
-- room to small ones.
function upload.hold(request, caller, came)
  local buffer = math.min(came, BUFFER)
  local all, mine = counts.hold(request, "buffers", buffer), counts.hold(request, "buffers " .. caller, buffer)
  if mine > BUFFER_SHARE then return 429, "too many requests of yours are under way" end
  if all > MOST_BUFFERS then return 503, "too many requests are under way" end
  if came <= BUFFER then return end
  return upload.problem(counts.hold(request, "bodies", came), counts.hold(request, "bodies " .. caller, came), came)
end

local function refuse(request, caller, status, message)
  -- its caller's others go on; what came lies there until nginx forgets the request, and is counted until then
  counts.give(request, "buffers " .. caller)
  counts.give(request, "bodies " .. caller)
  return answers.fail(status, message, { retry = (status == 429 or status == 503) and SOON or nil })
end

-- Wait until there is room for a body whose length is known; what is wrong where that takes too long.
local function admit(caller, length)
  local share = "bodies " .. caller
  for _ = 0, PATIENCE, PAUSE do
    local status, message = upload.problem(counts.get("bodies") + length, counts.get(share) + length, length)
    if status ~= 429 then return status, message end
    ngx.sleep(PAUSE)
  end
  return upload.problem(0, SHARE + 1, length)
end

-- Take the body of a request that has been let in; its bytes are held until the request is answered.
function upload.receive(request)
  local var = ngx.var
  local length = tonumber(var.http_content_length)
  local caller = callers.bucket(var.rw_key, var.binary_remote_addr)
  if not length or length > BUFFER then
    local status, message = admit(caller, length or 0)
    if status then return refuse(request, caller, status, message) end
  end
  local head = tonumber(var.request_length)
  local reader = ngx.thread.spawn(function()
    ngx.req.read_body()
    request.received = true
    if request.arrival then request.arrival:post() end
  end)
  if not request.received then
    request.arrival = semaphore.new()
    local pace, pause, before = rate.begin(clock.now()), PAUSE, 0
    while not request.arrival:wait(pause) do
      -- nginx has refused it meanwhile, and what runs here must neither go on nor end
      while request.refused do request.arrival:wait(FOREVER) end
      local came = tonumber(var.request_length) - head
      local status, message = upload.hold(request, caller, came)
      if not status and rate.is_slow(pace, clock.now(), came) then status, message = 408, "the body came too slowly" end
      if status then return refuse(request, caller, status, message) end
      pause, before = came - before > FAST and PAUSE or math.min(2 * pause, LONG_PAUSE), came
    end
  end
  ngx.thread.wait(reader)
  local status, message = upload.hold(request, caller, tonumber(var.request_length) - head)
  if status then return refuse(request, caller, status, message) end
end

return upload
