std = "luajit"
max_line_length = 80
exclude_files = {"spec/golden"}
files["spec"] = {std = "luajit+busted", max_line_length = 100}
files["examples"] = {std = "luajit"}
files["bin"] = {std = "luajit"}
