-- What is known of each request that this process works on. ngx.ctx does not outlive the way from one location to another.
local requests = {}

-- By connection: its number is the host's only one, and one request at a time is on it.
local open = {}

function requests.begin()
  local request = { tried = {}, held = {} }
  open[ngx.var.connection] = request
  return request
end

-- Nothing for what was refused before it could be read.
function requests.current()
  return open[ngx.var.connection]
end

function requests.finish()
  local number = ngx.var.connection
  local request = open[number]
  open[number] = nil
  return request
end

return requests
