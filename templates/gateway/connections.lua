-- Bounds the connections that one client has open in this process. nginx counts those alone that have said a whole
-- request (limit_conn); the others, which take their places with half a head or half a handshake, are found by their files.
local callers = require("callers")
local ffi = require("ffi")
local requests = require("requests")

local connections = {}

ffi.cdef([[
int getpeername(int file, void *address, unsigned int *size);
int shutdown(int file, int how);
]])
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

local function look()
  local last, peers = table_size(), {}
  if last <= most then return end
  for file = 0, last - 1 do
    local from, port = peer_of(file)
    if from then peers[#peers + 1] = { file = file, client = callers.client(from), address = from, port = port } end
  end
  if #peers <= most then return end
  for _, file in ipairs(connections.excess(peers, serves, most)) do ffi.C.shutdown(file, BOTH) end
end

-- A client may have a quarter of the connections of each process: where all of them stream, each takes a second one, to
-- an instance, and half is left for others.
function connections.init(of_process)
  most = math.floor(of_process / 4)
end

-- One timer that goes on: each new one would need a connection of nginx's, of which there may be none left.
local function look_again_and_again()
  while not ngx.worker.exiting() do
    local succeeded, why = pcall(look)
    if not succeeded then ngx.log(ngx.ALERT, "connections of clients are not bounded: ", why) end
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
