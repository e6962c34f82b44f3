-- Bounds the connections that one client has open in this process. nginx counts those alone that have said a whole
-- request (limit_conn); the others, which take their places with half a head or half a handshake, are found by their files.
local callers = require("callers")
local clock = require("clock")
local counts = require("counts")
local ffi = require("ffi")
local instances = require("instances")
local requests = require("requests")
local settings = require("settings")

local connections = {}

ffi.cdef([[
int getpeername(int file, void *address, unsigned int *size);
int shutdown(int file, int how);
int inet_pton(int family, const char *text, void *address);
]])
-- Probes in a row by which no connection to another box came about, until its connections end: a box without power
-- never ends them itself.
local LOST = 2
-- Seconds since a part of an answer came: of a box that is only too busy for new connections, nothing ends.
local SILENT = 10
-- Seconds between two looks.
local PAUSE = 1
-- socket(7), ip(7) and ipv6(7): families, where a port and an address lie, and both directions of shutdown(2).
local INET, INET6, BOTH = 2, 10, 2
local SIZE = 128
local address, size = ffi.new("uint8_t[?]", SIZE), ffi.new("unsigned int[1]")
local most

-- How large the table of this process's files is (proc(5)): no file has a higher number.
local function table_size()
  local file = assert(io.open("/proc/self/status"))
  local read = file:read("*a"):match("FDSize:%s*(%d+)")
  file:close()
  return tonumber(read)
end

-- The address and the port of the other end; nothing for what is no connection by IP.
local function peer_of(file)
  size[0] = SIZE
  if ffi.C.getpeername(file, address, size) ~= 0 then return nil end
  local family = ffi.cast("uint16_t *", address)[0]
  local from, bytes = 4, 4
  if family == INET6 then from, bytes = 8, 16 elseif family ~= INET then return nil end
  return ffi.string(address + from, bytes), address[2] * 256 + address[3]
end

-- Which of these connections are to be closed: of a client that has too many, those that wait for a request.
function connections.excess(peers, serves, limit)
  local number, closed = {}, {}
  for _, one in ipairs(peers) do number[one.client] = (number[one.client] or 0) + 1 end
  for _, one in ipairs(peers) do
    if number[one.client] > limit and not serves(one) then
      number[one.client] = number[one.client] - 1
      closed[#closed + 1] = one.file
    end
  end
  return closed
end

local function serves(one)
  return requests.is_open(one.address, one.port)
end

-- The address in the bytes of a socket's.
local function packed(text)
  local family, bytes = INET, 4
  if text:find(":", 1, true) then family, bytes = INET6, 16 end
  return ffi.C.inet_pton(family, text, address) == 1 and ffi.string(address, bytes) or nil
end

-- The ends of connections that this gateway opens to other boxes.
local function remote_ends()
  local ends = {}
  for _, one in pairs(settings.remote) do
    local at = packed(one.address)
    if at then ends[at .. " " .. one.port] = true end
  end
  return ends
end

local function look()
  local last, peers = table_size(), {}
  if last <= most then return end
  local outgoing = remote_ends()
  for file = 0, last - 1 do
    local from, port = peer_of(file)
    if from and not outgoing[from .. " " .. port] then peers[#peers + 1] = { file = file, client = callers.client(from), address = from, port = port } end
  end
  if #peers <= most then return end
  for _, file in ipairs(connections.excess(peers, serves, most)) do ffi.C.shutdown(file, BOTH) end
end

-- After each probe of the router's.
function connections.probed()
  local name = ngx.var.request_uri:match("^/probe/(.+)$")
  if not name or not settings.remote[name] then return end
  local before = counts.get("unreached " .. name)
  counts.set("unreached " .. name, instances.is_unsent(ngx.var.upstream_connect_time) and before + 1 or 0)
end

-- End the connections to boxes that are lost. What has no answer yet goes to another instance.
local function end_lost()
  local lost = remote_ends()
  -- one instance that answers proves that its box is there
  for name, one in pairs(settings.remote) do
    local silent = clock.now() - counts.get("heard " .. name) > SILENT
    local at = packed(one.address)
    if at and not (silent and counts.get("unreached " .. name) >= LOST) then lost[at .. " " .. one.port] = nil end
  end
  if not next(lost) then return end
  for file = 0, table_size() - 1 do
    local from, port = peer_of(file)
    if from and lost[from .. " " .. port] then ffi.C.shutdown(file, BOTH) end
  end
end

-- A client may have a quarter of the connections of each process: where all of them stream, each takes a second one, to
-- an instance, and half is left for others.
function connections.init(of_process)
  most = math.floor(of_process / 4)
end

-- One timer that goes on: each new one would need a connection of nginx's, of which there may be none left. After a
-- reload, the process before has it as long as it has requests.
local function look_again_and_again()
  while not ngx.worker.exiting() or requests.is_any() do
    local succeeded, why = pcall(look)
    if not succeeded then ngx.log(ngx.ALERT, "connections of clients are not bounded: ", why) end
    succeeded, why = pcall(end_lost)
    if not succeeded then ngx.log(ngx.ALERT, "connections to lost boxes do not end: ", why) end
    ngx.sleep(PAUSE)
  end
end

function connections.begin()
  assert(ngx.timer.at(0, look_again_and_again))
end

-- Whether a client has more requests under way in this process than it may have connections.
function connections.is_over(client)
  return requests.of(client) > most
end

return connections
