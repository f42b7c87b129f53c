-- The keys of a table in an order that never changes: positions, then names.
return function(t)
  local keys = {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b)
    if type(a) ~= type(b) then return type(a) == "number" end
    if type(a) == "number" then return a < b end
    return tostring(a) < tostring(b)
  end)
  return keys
end
