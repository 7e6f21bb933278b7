variable "kubeconfig_path" {
  description = "The file with the kubeconfig: it exists only while terraform works"
  type        = string
}

variable "node_pools" {
  type = list(string)
}

# With the provider of helm:
#
#   provider "helm" {
#     kubernetes = { config_path = var.kubeconfig_path }
#   }
#
# Here objects of terraform's own read the file as that provider would.
locals {
  server = yamldecode(file(var.kubeconfig_path)).clusters[0].cluster.server
}

resource "terraform_data" "release" {
  for_each = toset(var.node_pools)
  input    = { chart = "agent", pool = each.key, server = local.server }
}

output "releases" {
  value = [for release in terraform_data.release : "${release.output.chart}-${release.output.pool}"]
}
