# In place of a cluster, an object of terraform's own, which needs no provider and no account.
resource "terraform_data" "cluster" {
  input = {
    endpoint   = "https://cluster.example:6443"
    token      = sensitive("not-a-real-token-1")
    node_pools = ["default", "spot"]
  }
}

output "kubeconfig" {
  description = "How to reach the cluster, as administrator"
  sensitive   = true
  value = yamlencode({
    apiVersion      = "v1"
    kind            = "Config"
    current-context = "cluster"
    clusters        = [{ name = "cluster", cluster = { server = terraform_data.cluster.output.endpoint } }]
    users           = [{ name = "admin", user = { token = terraform_data.cluster.output.token } }]
    contexts        = [{ name = "cluster", context = { cluster = "cluster", user = "admin" } }]
  })
}

output "node_pools" {
  value = terraform_data.cluster.output.node_pools
}
