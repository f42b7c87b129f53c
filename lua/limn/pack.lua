-- pack(...): the values as a list, and in n how many there are, nils too.
return function(...) return {n = select("#", ...), ...} end
