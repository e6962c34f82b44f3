-- What is known of each request that this process works on. ngx.ctx does not outlive the way from one location to another.
local callers = require("callers")

local requests = {}

-- By connection: its number is the host's only one, and one request at a time is on it.
local open = {}
-- The other end of a connection -> a request of it is under way; a client -> how many of its are.
local peers, number = {}, {}

function requests.begin()
  local var = ngx.var
  local address = var.binary_remote_addr
  local request = { tried = {}, held = {}, client = callers.client(address), peer = address .. var.remote_port }
  open[var.connection] = request
  peers[request.peer] = true
  number[request.client] = (number[request.client] or 0) + 1
  return request
end

-- Nothing for what was refused before it could be read.
function requests.current()
  return open[ngx.var.connection]
end

function requests.is_open(address, port)
  return peers[address .. port] == true
end

-- How many requests of a client are under way.
function requests.of(client)
  return number[client] or 0
end

-- Whether any request is under way in this process.
function requests.is_any()
  return next(open) ~= nil
end

function requests.finish()
  local connection = ngx.var.connection
  local request = open[connection]
  open[connection] = nil
  if request then
    peers[request.peer] = nil
    local left = number[request.client] - 1
    number[request.client] = left > 0 and left or nil
  end
  return request
end

return requests
