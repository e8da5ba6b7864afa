// Koop serves what it finds here: feature collections by name, as a FeatureServer.
const fs = require('fs')
const path = require('path')
const Koop = require('@koopjs/koop-core')

const [port, folder] = process.argv.slice(2)
const koop = new Koop({ logLevel: 'error', disableCors: true })
koop.register({
  type: 'provider',
  name: 'real',
  hosts: false,
  disableIdParam: false,
  version: '1.0.0',
  Model: class {
    async getData (request) {
      const name = request.params.id
      const geojson = JSON.parse(fs.readFileSync(path.join(folder, path.basename(name) + '.geojson'), 'utf8'))
      geojson.metadata = { name, idField: 'id', maxRecordCount: 700 }
      return geojson
    }
  }
})
koop.server.listen(Number(port), '127.0.0.1')
