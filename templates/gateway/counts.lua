-- What is under way, in memory that all processes share and a reload leaves alone.
local shared = ngx.shared.rigwright

local counts = {}

-- Seconds that an instance is left out for after it was said to leave: whoever stops it says so again and again, and
-- where he does not live to stop it, it is asked again.
local LEAVING = 10
-- Streams say something within an hour or are ended, and each looks when it does.
local GONE_FOR = 7200

local function alive(pid)
  local file = io.open("/proc/" .. pid .. "/stat")
  if file then file:close() end
  return file ~= nil
end

-- What a process counted that did not live to take it back.
local function forget(pid)
  if not shared:add("forgetting " .. pid, true, 10) then return end
  for _, key in ipairs(shared:get_keys(0)) do
    local name = key:match("^" .. pid .. " (.+)$")
    if name then
      shared:incr(name, -shared:get(key))
      shared:delete(key)
    end
  end
  shared:delete("worker " .. pid)
end

function counts.begin()
  local own = tostring(ngx.worker.pid())
  for _, key in ipairs(shared:get_keys(0)) do
    local pid = key:match("^worker (%d+)$")
    if pid and (pid == own or not alive(pid)) then forget(pid) end
  end
  shared:set("worker " .. own, true)
end

local function add(name, by)
  shared:incr(ngx.worker.pid() .. " " .. name, by, 0)
  return shared:incr(name, by, 0)
end

-- One more of them, or that many, for this request; how many there are.
function counts.take(request, name, by)
  request.held[name] = by or 1
  return add(name, by or 1)
end

-- Have this request hold exactly that many of them; how many there are.
function counts.hold(request, name, number)
  local before = request.held[name] or 0
  request.held[name] = number
  return add(name, number - before)
end

-- Take back one, or all that a request holds.
function counts.give(request, name)
  for held in pairs(name and { [name] = true } or request.held) do
    local by = request.held[held]
    if by then
      request.held[held] = nil
      add(held, -by)
    end
  end
end

function counts.get(name)
  return shared:get(name) or 0
end

function counts.set(name, value)
  shared:set(name, value)
end

-- What only grows.
function counts.count(name, by)
  shared:incr("total " .. name, by or 1, 0)
end

-- How many of these there have been in this minute, with this one.
function counts.minute(name)
  return shared:incr(("minute %d %s"):format(ngx.time() / 60, name), 1, 0, 120)
end

-- Names that begin so, without that beginning, each with its number.
function counts.beginning(prefix)
  local found = {}
  for _, key in ipairs(shared:get_keys(0)) do
    if key:sub(1, #prefix) == prefix then found[key:sub(#prefix + 1)] = shared:get(key) end
  end
  return found
end

-- One that leaves gets nothing new; once it is cut, what goes on there ends.
function counts.leave(name, cut)
  shared:set("leaving " .. name, true, LEAVING)
  if cut then shared:set("cut " .. name, true, LEAVING) end
end

function counts.stay(name)
  shared:delete("leaving " .. name)
  shared:delete("cut " .. name)
end

-- Another box has taken a request for an instance of its own, and given no answer.
function counts.refuse(name)
  shared:set("refused " .. name, true, LEAVING)
end

function counts.refused(name)
  return shared:get("refused " .. name)
end

function counts.leaving(name)
  return shared:get("leaving " .. name)
end

function counts.cut(name)
  return shared:get("cut " .. name)
end

function counts.gone(key)
  return shared:get("gone " .. key)
end

function counts.revoke(key, gone)
  if gone then shared:set("gone " .. key, true, GONE_FOR) else shared:delete("gone " .. key) end
end

return counts
